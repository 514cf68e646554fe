// Where the ranks of a mesh listen, so that a connection that fails is told by rank and host, and not by address alone.
#pragma once

#include <string>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}

namespace cp_pool {

// Tells the other ranks where this one listens. device: as Gloo describes it, with "addr=[10.0.0.2]" in it.
void tell_place(c10d::Store& store, int rank, const std::string& device);

// "host a cannot reach rank 2 on host b (10.0.0.2)", where Gloo's error has "remote=[10.0.0.2]" in it and a rank has
// told that it listens there; of several on one host all are named. Empty: the error or the store does not say.
std::string unreached(c10d::Store& store, int size, const std::string& error);

}  // namespace cp_pool
