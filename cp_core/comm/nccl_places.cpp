#include "cp_core/comm/nccl_places.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace cp_pool {
namespace {

using Numbers = std::array<std::int64_t, 3>;

}  // namespace

NcclPlaces::NcclPlaces(c10::intrusive_ptr<c10d::Store> store, std::string prefix)
    : store_(std::move(store)), prefix_(std::move(prefix)) {}
NcclPlaces::NcclPlaces(NcclPlaces&&) noexcept = default;
NcclPlaces::~NcclPlaces() = default;

void NcclPlaces::publish(int rank, const Place& place) {
  const Numbers numbers{place.barrier, place.tag, place.operations};
  std::vector<std::uint8_t> bytes(sizeof numbers);
  std::memcpy(bytes.data(), numbers.data(), sizeof numbers);
  store_->set(fmt::format("{}{}", prefix_, rank), bytes);
}

std::optional<NcclPlaces::Place> NcclPlaces::of(int rank) const {
  const std::string key = fmt::format("{}{}", prefix_, rank);
  if (!store_->check({key})) return std::nullopt;
  const std::vector<std::uint8_t> bytes = store_->get(key);
  Numbers numbers{};
  TORCH_CHECK(bytes.size() == sizeof numbers, key, " has ", bytes.size(), " bytes");
  std::memcpy(numbers.data(), bytes.data(), sizeof numbers);
  return Place{.barrier = numbers[0], .tag = numbers[1], .operations = numbers[2]};
}

}  // namespace cp_pool
