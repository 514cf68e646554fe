#include "cp_core/testing/cases_on_threads.h"

#include <chrono>

#include <fmt/format.h>

#include "cases/case_groups.h"
#include "cases/case_json.h"
#include "cases/comm_facts.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool::verify::test {
namespace {

// std::uniform_int_distribution is not used, since its results differ between standard libraries.
template <typename T>
T pick(std::mt19937_64& generator, std::initializer_list<T> choices) {
  return choices.begin()[generator() % choices.size()];
}

}  // namespace

Case small_case() {
  Case c;
  c.dtype = DType::fp32;
  c.seqlen_q = c.seqlen_kv = 16;
  c.heads = c.kv_heads = 2;
  c.head_dim_qk = c.head_dim_v = 8;
  return c;
}

Case one_key_case() {
  Case c = small_case();
  c.layout = Layout::thd;
  c.pad_between_seqs = true;
  c.batch = 1;
  c.seqlens = {{1}};
  c.heads = c.kv_heads = 8;
  c.max_logit = true;
  return c;
}

Case steep_case() {
  Case c = small_case();
  c.cp_size = 3;
  c.seqlen_q = c.seqlen_kv = 24;
  c.causal = true;
  c.max_logit = true;
  c.input_scale = 10;
  return c;
}

Case high_sink_case() {
  Case c = small_case();
  c.heads = c.kv_heads = 8;
  c.softmax = SoftmaxType::learnable;
  c.max_logit = true;
  c.input_scale = 0.125;
  return c;
}

Case low_case() {
  Case c = small_case();
  c.causal = true;
  c.max_logit = true;
  c.score_offset = -100;
  return c;
}

Case lowest_case() {
  Case c = low_case();
  c.training = false;
  c.score_offset = -65536;
  return c;
}

Case capped_case() {
  Case c = small_case();
  c.softcap = 0.5;
  c.bias = BiasShape::shape_11ss;
  return c;
}

Case documents_case() {
  Case c = small_case();
  c.mask = {{.queries = {0, 6}, .keys = {0, 8}, .type = SliceType::causal},
            {.queries = {6, 16}, .keys = {8, 16}, .type = SliceType::causal},
            {.queries = {6, 16}, .keys = {0, 5}, .type = SliceType::inverse_causal}};
  return c;
}

std::vector<Case> twin_cases() {
  Case c = small_case();
  c.causal = true;
  c.bias = BiasShape::shape_1hss;
  c.softmax = SoftmaxType::learnable;
  c.max_logit = true;
  Case twin = c;
  ++twin.seed;
  return {c, twin};
}

Case random_case(std::mt19937_64& generator) {
  Case c;
  c.comm = kValues<CommType>[generator() % kValues<CommType>.size()];
  do {
    c.cp_size = pick(generator, {1, 2, 3, 4, 5, 6, 7, 8});
  } while (!facts_of(c.comm).takes_size({c.cp_size}));
  c.layout = pick(generator, {Layout::bshd, Layout::sbhd, Layout::thd});
  c.dtype = pick(generator, {DType::fp32, DType::bf16, DType::fp16});
  c.batch = pick<std::int64_t>(generator, {1, 2, 3});
  const auto draw_length = [&] { return 2 * c.cp_size * pick<std::int64_t>(generator, {1, 2, 3, 5}); };
  c.seqlen_q = draw_length();
  c.seqlen_kv = pick(generator, {false, false, true}) ? draw_length() : c.seqlen_q;
  c.kv_heads = pick<std::int64_t>(generator, {1, 2, 8});
  if (const int ranks = head_ranks(c); ranks > 1) c.kv_heads = ranks * pick<std::int64_t>(generator, {1, 2});
  c.heads = c.kv_heads * pick<std::int64_t>(generator, {1, 2, 4});
  c.head_dim_qk = pick<std::int64_t>(generator, {4, 8, 24});
  c.head_dim_v = pick<std::int64_t>(generator, {c.head_dim_qk, 8, 16});
  c.causal = pick(generator, {false, true});
  for (auto& side : c.window) side = pick<std::int64_t>(generator, {-1, -1, 0, 1, 3, 7, 20});
  c.chunk = pick<std::int64_t>(generator, {0, 0, 1, 3, 8, 20});
  c.softmax =
      pick(generator, {SoftmaxType::vanilla, SoftmaxType::vanilla, SoftmaxType::off_by_one, SoftmaxType::learnable});
  c.bias = pick<std::optional<BiasShape>>(
      generator, {std::nullopt, std::nullopt, std::nullopt, BiasShape::shape_1hss, BiasShape::shape_bhss,
                  BiasShape::shape_b1ss, BiasShape::shape_11ss, BiasShape::shape_111s});
  c.max_logit = pick(generator, {false, true});
  c.pad_between_seqs = c.layout == Layout::thd && pick(generator, {false, true});
  c.training = pick(generator, {true, true, true, false});
  c.seed = generator();
  c.strided = c.seed % 3 == 0;
  if (c.seed % 4 == 1) {
    c.replicated = 1 + static_cast<std::int64_t>(c.seed / 4 % 6);
    c.seqlen_q += c.replicated;
    c.seqlen_kv += c.replicated;
  }
  if (c.cp_size <= 4 && c.seed % 5 == 0) c.group = 2;
  c.backend = c.seed % 2 == 0 ? Backend::math : Backend::cudnn;
  c.input_scale = pick<double>(generator, {1, 1, 1, 1, 1, 0.125, 3, 10});
  if (c.seed % 7 == 3) c.score_offset = c.seed % 2 == 0 ? -100 : 100;
  if (c.seed % 7 == 5) c.softcap = c.seed % 2 == 0 ? 0.5 : 20;
  return c;
}

std::string text_of(const Case& c) {
  return to_json(c).dump();
}

std::vector<RankReport> run_on_threads(const Case& c, bool windows) {
  constexpr std::chrono::minutes kLimit{1};
  const auto deadline = Communicator::Clock::now() + kLimit;
  std::vector<RankReport> reports(static_cast<std::size_t>(world_size(c)));
  const Division division = division_of(c);
  const auto run = [&](const CpGroups& all, int rank) {
    const CpGroups groups = groups_of_case(all, division);
    for (const auto& group : {groups.cp, groups.inner, groups.outer}) {
      if (group) group->set_deadline(deadline);
    }
    RunOptions options;
    options.world_rank = rank;
    reports[static_cast<std::size_t>(rank)] =
        run_case(case_of_group(c, group_of_rank(division, rank)), groups, options);
  };
  run_ranks(world_size(c), run, kLimit, {.windows = windows});
  return reports;
}

std::string fault_of(const std::vector<RankReport>& reports) {
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const RankReport& report = reports[rank];
    if (report.outcome == CaseOutcome::fail) return fmt::format("rank {}: {}", rank, report.reason);
  }
  return {};
}

}  // namespace cp_pool::verify::test
