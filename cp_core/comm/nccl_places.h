// Where each rank of a group stands at its last barrier, as told in the store: what NCCL cannot tell when a rank does
// not come, or comes with another operation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}

namespace cp_pool {

class NcclPlaces {
 public:
  struct Place {
    std::int64_t barrier = 0;  // how many the rank has come to
    std::int64_t tag = 0;
    std::int64_t operations = 0;
  };

  // Uses one key a rank, that starts with `prefix`. The store is not used but in these calls.
  NcclPlaces(c10::intrusive_ptr<c10d::Store> store, std::string prefix);
  NcclPlaces(const NcclPlaces&) = delete;
  NcclPlaces(NcclPlaces&&) noexcept;
  NcclPlaces& operator=(const NcclPlaces&) = delete;
  NcclPlaces& operator=(NcclPlaces&&) = delete;
  ~NcclPlaces();

  // Throw what the store throws.
  void publish(int rank, const Place& place);
  [[nodiscard]] std::optional<Place> of(int rank) const;  // nullopt before the first

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
};

}  // namespace cp_pool
