// Publishes where the ranks of a mesh listen, so that the error of a failed connection can name rank and host, and not
// only an address.
#pragma once

#include <string>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}

namespace cp_pool {

// Puts into the store where this rank listens. device: Gloo's description of it, which contains "addr=[10.0.0.2]".
void tell_place(c10d::Store& store, int rank, const std::string& device);

// Returns "host a cannot reach rank 2 on host b (10.0.0.2)" if Gloo's error contains "remote=[10.0.0.2]" and the store
// has a rank that listens there; several ranks at the address are all named. Returns an empty string if the error has
// no address or the store no such rank.
std::string unreached(c10d::Store& store, int size, const std::string& error);

}  // namespace cp_pool
