// Tests that quick has a case for each pair of values of two features, and each combination of comm, mask and layout.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/case_json.h"
#include "cases/comm_facts.h"
#include "cases/lengths.h"
#include "cases/matrix.h"

namespace cp_pool {
namespace {

using Lengths = std::vector<std::int64_t>;

// A value of a feature, and how to give it to a case. The case may become impossible, or lack the value after all.
struct FeatureValue {
  std::string name;
  std::function<void(Case&)> set;
};

struct Feature {
  std::string name;
  std::function<std::string(const Case&)> of;  // the name of the value that a valid case has
  std::vector<FeatureValue> values;
};

std::int64_t total(const Lengths& lengths) {
  std::int64_t sum = 0;
  for (const std::int64_t length : lengths) sum += length;
  return sum;
}

// --- What a case is -------------------------------------------------------------------------------------------------

std::string mask_kind(const Case& c) {
  if (c.chunk > 0) return "chunked";
  if (!c.mask.empty()) return "slices";
  if (c.causal) return c.window[0] == kInfiniteWindow ? "causal" : "causal window";
  return c.window[0] == kInfiniteWindow && c.window[1] == kInfiniteWindow ? "none" : "window";
}

// A rank's part is padded / cp_size tokens of a sequence. Beyond it a window asks for keys of more than the neighbours.
std::string window_of(const Case& c) {
  const std::int64_t side = std::max(c.window[0], c.causal ? kInfiniteWindow : c.window[1]);
  if (side == kInfiniteWindow) return "none";
  const SequenceLengths lengths = resolve_lengths(c);
  for (std::size_t b = 0; b < lengths.valid_q.size() && c.cp_size > 2; ++b) {
    const std::int64_t part = lengths.padded_kv[b] / c.cp_size;
    if (side > part && std::min(lengths.valid_q[b], lengths.valid_kv[b]) > 2 * part) return "longer than a part";
  }
  return "within a part";
}

std::string padding_of(const Case& c) {
  const SequenceLengths lengths = resolve_lengths(c);
  return lengths.valid_q == lengths.padded_q && lengths.valid_kv == lengths.padded_kv ? "none" : "between sequences";
}

std::string lengths_of(const Case& c) {
  const SequenceLengths lengths = resolve_lengths(c);
  const std::int64_t q = total(lengths.valid_q);
  const std::int64_t kv = total(lengths.valid_kv);
  if (q == kv) return "equal";
  return q < kv ? "more keys" : "more queries";
}

std::string heads_of(const Case& c) {
  if (c.heads == c.kv_heads) return "MHA";
  return c.heads / c.kv_heads < c.cp_size ? "GQA of less than the ranks" : "GQA of the ranks or more";
}

std::string ranks_of(const Case& c) {
  if (c.cp_size % 2 == 1) return c.cp_size == 1 ? "1" : "3, 5 or 7";
  return c.cp_size > 4 ? "6 or 8" : fmt::format("{}", c.cp_size);
}

// Whether the chunk of padded / (2 cp_size) tokens with this index has a valid one.
bool has_valid_token(std::int64_t valid, std::int64_t padded, std::int64_t chunk, int cp_size) {
  return valid > chunk * (padded / (std::int64_t{2} * cp_size));
}

// Whether a rank has padding alone, of queries and of keys, in the dual-chunk partition, and others have tokens.
bool has_rank_without_token(const Case& c) {
  const SequenceLengths lengths = resolve_lengths(c);
  if (c.replicated > 0 || total(lengths.valid_q) == 0) return false;
  const auto held = [&](int rank, const Lengths& valid, const Lengths& padded) {
    for (std::size_t b = 0; b < valid.size(); ++b) {
      // The second chunk of a rank comes after its first.
      if (padded[b] > 0 && has_valid_token(valid[b], padded[b], rank, c.cp_size)) return true;
    }
    return false;
  };
  for (int rank = 0; rank < c.cp_size; ++rank) {
    if (!held(rank, lengths.valid_q, lengths.padded_q) && !held(rank, lengths.valid_kv, lengths.padded_kv)) return true;
  }
  return false;
}

bool has_empty_sequence(const Case& c) {
  const SequenceLengths lengths = resolve_lengths(c);
  return std::ranges::count(lengths.valid_q, 0) + std::ranges::count(lengths.valid_kv, 0) > 0;
}

// --- How a case gets a value ----------------------------------------------------------------------------------------

void set_mask(Case& c, bool causal, std::int64_t left, std::int64_t right, std::int64_t chunk) {
  c.causal = causal;
  c.window = {left, right};
  c.chunk = chunk;
}

// Gives every finite side of the window this size, or a case without a window one to the left.
void set_window(Case& c, std::int64_t side) {
  if (window_of(c) == "none") c.window[0] = side;
  for (std::int64_t& finite : c.window) {
    if (finite > 0) finite = side;
  }
}

void set_drawn_lengths(Case& c, std::int64_t q, std::int64_t kv) {
  c.seqlens = c.seqlens_kv = std::nullopt;
  c.seqlen_q = q;
  c.seqlen_kv = kv;
}

void set_explicit_lengths(Case& c, const std::function<void(Lengths&)>& change) {
  const SequenceLengths lengths = resolve_lengths(c);
  c.seqlens = c.pad_between_seqs ? lengths.valid_q : lengths.padded_q;
  c.seqlens_kv = c.pad_between_seqs ? lengths.valid_kv : lengths.padded_kv;
  change(*c.seqlens);
  change(*c.seqlens_kv);
}

void set_heads(Case& c, std::int64_t heads_of_kv_head) {
  c.kv_heads = std::max<std::int64_t>(head_ranks(c), 1);
  c.heads = c.kv_heads * heads_of_kv_head;
}

void set_replicated(Case& c, std::int64_t replicated) {
  const std::int64_t more = replicated - c.replicated;
  c.replicated = replicated;
  c.seqlen_q += more;
  c.seqlen_kv += more;
}

// --- Features -------------------------------------------------------------------------------------------------------

template <typename Enum>
Feature named(const std::string& name, Enum Case::* field) {
  Feature feature{
      .name = name, .of = [field](const Case& c) { return std::string(to_string(c.*field)); }, .values = {}};
  for (const Enum value : kValues<Enum>) {
    feature.values.push_back({std::string(to_string(value)), [field, value](Case& c) { c.*field = value; }});
  }
  return feature;
}

Feature flag(const std::string& name, const std::function<bool(const Case&)>& of, const std::function<void(Case&)>& on,
             const std::function<void(Case&)>& off) {
  return {.name = name,
          .of = [of](const Case& c) { return std::string(of(c) ? "yes" : "no"); },
          .values = {{"yes", on}, {"no", off}}};
}

Feature flag(const std::string& name, bool Case::* field) {
  return flag(
      name, [field](const Case& c) { return c.*field; }, [field](Case& c) { c.*field = true; },
      [field](Case& c) { c.*field = false; });
}

Feature ranks() {
  Feature feature{.name = "ranks", .of = ranks_of, .values = {}};
  for (const int cp_size : {1, 2, 3, 4, 6}) {
    Case c;
    c.cp_size = cp_size;
    feature.values.push_back({ranks_of(c), [cp_size](Case& to) { to.cp_size = cp_size; }});
  }
  return feature;
}

Feature bias() {
  Feature feature{.name = "bias",
                  .of = [](const Case& c) { return std::string(c.bias ? to_string(*c.bias) : "none"); },
                  .values = {{"none", [](Case& c) { c.bias = std::nullopt; }}}};
  for (const BiasShape shape : kValues<BiasShape>) {
    feature.values.push_back({std::string(to_string(shape)), [shape](Case& c) { c.bias = shape; }});
  }
  return feature;
}

Feature offset() {
  Feature feature{
      .name = "offset", .of = [](const Case& c) { return fmt::format("{}", c.score_offset); }, .values = {}};
  for (const double value : {0., -100., -65536.}) {
    feature.values.push_back({fmt::format("{}", value), [value](Case& c) { c.score_offset = value; }});
  }
  return feature;
}

const std::vector<Feature>& features() {
  static const std::vector<Feature> all{
      named("comm", &Case::comm),
      named("layout", &Case::layout),
      named("dtype", &Case::dtype),
      {"padding",
       padding_of,
       {{"none", [](Case& c) { c.pad_between_seqs = false; }},
        {"between sequences", [](Case& c) { c.pad_between_seqs = true; }}}},
      {"mask",
       mask_kind,
       {{"none", [](Case& c) { set_mask(c, false, -1, -1, 0); }},
        {"causal", [](Case& c) { set_mask(c, true, -1, -1, 0); }},
        {"causal window", [](Case& c) { set_mask(c, true, 9, 0, 0); }},
        {"window", [](Case& c) { set_mask(c, false, 9, 5, 0); }},
        {"chunked", [](Case& c) { set_mask(c, true, -1, -1, 10); }}}},
      {"window",
       window_of,
       {{"none", [](Case& c) { c.window = {-1, -1}; }},
        {"within a part", [](Case& c) { set_window(c, 3); }},
        {"longer than a part", [](Case& c) { set_window(c, 40); }}}},
      {"lengths of q and kv",
       lengths_of,
       {{"equal", [](Case& c) { set_drawn_lengths(c, c.seqlen_q, c.seqlen_q); }},
        {"more keys", [](Case& c) { set_drawn_lengths(c, c.seqlen_q, 2 * c.seqlen_q); }},
        {"more queries", [](Case& c) { set_drawn_lengths(c, 2 * c.seqlen_kv, c.seqlen_kv); }}}},
      {"heads",
       heads_of,
       {{"MHA", [](Case& c) { c.kv_heads = c.heads; }},
        {"GQA of less than the ranks", [](Case& c) { set_heads(c, 2); }},
        {"GQA of the ranks or more", [](Case& c) { set_heads(c, std::max(c.cp_size, 2)); }}}},
      flag(
          "MLA", [](const Case& c) { return c.head_dim_qk != c.head_dim_v; },
          [](Case& c) { c.head_dim_v = c.head_dim_qk / 2; }, [](Case& c) { c.head_dim_v = c.head_dim_qk; }),
      bias(),
      named("softmax", &Case::softmax),
      flag("max_logit", &Case::max_logit),
      ranks(),
      flag(
          "rank without a token", has_rank_without_token,
          [](Case& c) {
            set_explicit_lengths(c, [](Lengths& lengths) {
              for (std::int64_t& length : lengths) length = std::min<std::int64_t>(length, 1);
            });
          },
          [](Case& c) { set_drawn_lengths(c, c.seqlen_q, c.seqlen_kv); }),
      flag(
          "sequence of length 0", has_empty_sequence,
          [](Case& c) { set_explicit_lengths(c, [](Lengths& lengths) { lengths.front() = 0; }); },
          [](Case& c) { set_drawn_lengths(c, c.seqlen_q, c.seqlen_kv); }),
      offset(),
      flag("training", &Case::training),
      flag(
          "replicated", [](const Case& c) { return c.replicated > 0; }, [](Case& c) { set_replicated(c, 5); },
          [](Case& c) { set_replicated(c, 0); }),
      flag(
          "two groups", [](const Case& c) { return c.group > 1; }, [](Case& c) { c.group = 2; },
          [](Case& c) { c.group = 1; }),
      flag("strided", &Case::strided)};
  return all;
}

// --- Pairs ----------------------------------------------------------------------------------------------------------

struct Chosen {
  const Feature* feature;
  const FeatureValue* value;

  [[nodiscard]] std::string text() const { return fmt::format("{}: {}", feature->name, value->name); }
  [[nodiscard]] bool is_of(const Case& c) const { return feature->of(c) == value->name; }
};

// Pairs that quick leaves out, though such cases exist.
const std::vector<std::pair<std::string, std::string>> kLeftOut{
    // A sink then takes all the weight: out is 0, whatever else the case has.
    {"softmax: off_by_one", "offset: -100"},
    {"softmax: learnable", "offset: -100"},
    {"softmax: off_by_one", "offset: -65536"},
    {"softmax: learnable", "offset: -65536"},
    {"ranks: 6 or 8", "two groups: yes"},  // a pool of at least twelve ranks
    // Each of these would take a case of its own.
    {"mask: none", "ranks: 6 or 8"},
    {"mask: none", "offset: -65536"},
    {"bias: 1hss", "ranks: 1"},
    {"bias: 11ss", "offset: -100"},
    {"bias: bhss", "rank without a token: yes"}};

std::vector<Case> quick_cases() {
  std::vector<Case> cases;
  for (MatrixCase& entry : expand(std::vector{load_matrix(CP_POOL_MATRICES "/quick.json")}, "small")) {
    cases.push_back(std::move(entry.c));
  }
  return cases;
}

// Gives both values to each base, in both orders. Returns the JSON form of the first case that then has them and that
// can run; empty if there is none, since the values contradict each other or find_problem refuses every such case.
std::string constructed(const std::vector<Case>& bases, const Chosen& a, const Chosen& b) {
  for (const Case& base : bases) {
    for (const auto& [first, second] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
      Case c = base;
      first->value->set(c);
      if (find_problem(c)) continue;
      second->value->set(c);
      if (find_problem(c)) continue;
      if (a.is_of(c) && b.is_of(c)) return to_json(c).dump();
    }
  }
  return {};
}

TEST(QuickPairs, EveryPairOfValuesOfTwoFeaturesHasACase) {
  const std::vector<Case> cases = quick_cases();
  std::set<std::pair<std::string, std::string>> met;
  for (const Case& c : cases) {
    std::vector<std::string> values;
    for (const Feature& feature : features()) values.push_back(fmt::format("{}: {}", feature.name, feature.of(c)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (std::size_t j = i + 1; j < values.size(); ++j) met.emplace(values[i], values[j]);
    }
  }
  EXPECT_LE(kLeftOut.size(), 12U);
  for (std::size_t i = 0; i < features().size(); ++i) {
    for (std::size_t j = i + 1; j < features().size(); ++j) {
      for (const FeatureValue& one : features()[i].values) {
        for (const FeatureValue& other : features()[j].values) {
          const Chosen a{&features()[i], &one};
          const Chosen b{&features()[j], &other};
          const std::pair pair{a.text(), b.text()};
          const bool left_out = std::ranges::find(kLeftOut, pair) != kLeftOut.end();
          if (left_out) {
            EXPECT_FALSE(met.contains(pair)) << pair.first << " and " << pair.second << " are not left out";
          } else if (!met.contains(pair)) {
            EXPECT_EQ(constructed(cases, a, b), "") << "no case has " << pair.first << " and " << pair.second;
          }
        }
      }
    }
  }
}

// Padding keys come after every valid query under a causal mask, so that only some combinations show them.
TEST(QuickPairs, EveryMaskMeetsEveryCommLayoutAndPadding) {
  std::set<std::array<std::string, 4>> met;
  for (const Case& c : quick_cases()) {
    met.insert({mask_kind(c), std::string(to_string(c.comm)), std::string(to_string(c.layout)), padding_of(c)});
  }
  for (const char* mask : {"none", "causal", "causal window", "window"}) {
    for (const auto& [comm, comm_name] : kNames<CommType>) {
      for (const auto& [layout, layout_name] : kNames<Layout>) {
        for (const char* padding : {"none", "between sequences"}) {
          if (layout != Layout::thd && std::string(padding) != "none") continue;
          EXPECT_TRUE(met.contains({mask, std::string(comm_name), std::string(layout_name), padding}))
              << mask << " " << comm_name << " " << layout_name << " " << padding;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cp_pool
