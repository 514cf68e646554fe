#include "worker/rank_messages.h"

#include <stdexcept>
#include <type_traits>

#include <nlohmann/json.hpp>

// NOLINTBEGIN(readability-identifier-naming): nlohmann's names.
namespace nlohmann {
template <typename T>
struct adl_serializer<std::optional<T>> {
  static void to_json(json& j, const std::optional<T>& value) { j = value ? json(*value) : json(nullptr); }
  static void from_json(const json& j, std::optional<T>& value) {
    if (j.is_null()) {
      value.reset();
    } else {
      value = j.get<T>();
    }
  }
};
}  // namespace nlohmann
// NOLINTEND(readability-identifier-naming)

namespace cp_pool::protocol {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PerfRequest, warmup, iterations, graph, trace_dir)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunRequest, seq, id, case_json, timeout_ms, dump_dir, reference_cache, perf)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankInfo, rank, host, pid)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Hygiene, rank, rss_kib, fds, threads, gpu_kib)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LostOutput, output, message)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TensorCheck, tensor, rank, max_abs, rms, error, bound, baseline, worst_index, ok,
                                   message)
}  // namespace cp_pool::protocol

namespace cp_pool {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunCommand, request)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BeginCommand, seq, go)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RebuildCommand, generation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AbortCommand, generation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProbeCommand, token)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PrepareCommand, case_json)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Hello, info, startup_ms, data_plane)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CaseReset, rank, seq)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CasePhase, seq, phase)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CaseFailing, rank, seq)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Failure, kind, phase, summary, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankStepTimes, step_ms, one_rank_ms, one_rank_reason, bytes_sent)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankOutcome, rank, verdict, reason, failure, output_hash, checks, timings_ms,
                                   hygiene, backend, remarks, perf, lost_outputs)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CaseDone, seq, outcome)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Rebuilt, rank, generation, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Probed, rank, token)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Goodbye, rank)

namespace {

using nlohmann::json;

// A variant is [index, message].
template <typename Variant>
Bytes encode_variant(const Variant& message) {
  json body = json::object();
  std::visit(
      [&](const auto& m) {
        if constexpr (!std::is_empty_v<std::decay_t<decltype(m)>>) body = m;
      },
      message);
  return json::to_msgpack(json::array({message.index(), body}));
}

template <typename Variant, std::size_t I = 0>
Variant decode_alternative(std::size_t index, const json& body) {
  if constexpr (I == std::variant_size_v<Variant>) {
    throw std::invalid_argument("control plane: message of an unknown kind");
  } else {
    using Message = std::variant_alternative_t<I, Variant>;
    if (index != I) return decode_alternative<Variant, I + 1>(index, body);
    if constexpr (std::is_empty_v<Message>) {
      return Message{};
    } else {
      return body.get<Message>();
    }
  }
}

template <typename Variant>
Variant decode_variant(const Bytes& bytes) {
  const json message = json::from_msgpack(bytes);
  return decode_alternative<Variant>(message.at(0).get<std::size_t>(), message.at(1));
}

}  // namespace

Bytes encode(const ComputeCommand& message) {
  return encode_variant(message);
}
Bytes encode(const WatchCommand& message) {
  return encode_variant(message);
}
Bytes encode(const RankMessage& message) {
  return encode_variant(message);
}
ComputeCommand decode_compute_command(const Bytes& bytes) {
  return decode_variant<ComputeCommand>(bytes);
}
WatchCommand decode_watch_command(const Bytes& bytes) {
  return decode_variant<WatchCommand>(bytes);
}
RankMessage decode_rank_message(const Bytes& bytes) {
  return decode_variant<RankMessage>(bytes);
}

}  // namespace cp_pool
