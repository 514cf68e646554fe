#include "cases/search/traits.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "cases/case_json.h"
#include "cases/comm_facts.h"
#include "cases/lengths.h"

namespace cp_pool::search {
namespace {

// Fields that are no traits by themselves: names, the seed, and sizes, of which only comparisons matter.
constexpr std::array<std::string_view, 14> kNoTraits{"suite",  "model",    "batch",      "seqlen_q", "seqlen_kv",
                                                     "heads",  "kv_heads", "head_dim_v", "seqlens",  "seqlens_kv",
                                                     "window", "chunk",    "mask",       "seed"};
// Numeric fields whose every value is a trait, but never a special trait.
constexpr std::array<std::string_view, 5> kFewValues{"cp_size", "head_dim_qk", "input_scale", "score_offset",
                                                     "softcap"};

bool has(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_of_few_values(const CaseField& field) {
  using Kind = CaseField::Kind;
  return field.kind == Kind::name || field.kind == Kind::boolean || has(kFewValues, field.name);
}

void add_fields(const Case& c, std::vector<std::string>& traits) {
  for (const CaseField& field : case_fields()) {
    if (has(kNoTraits, field.name)) continue;
    if (is_of_few_values(field)) {
      traits.push_back(fmt::format("{}={}", field.name, field_text(field, c)));
    } else if (!is_default(field, c)) {
      traits.push_back(fmt::format("{} not at its default", field.name));
    }
  }
}

void add_comparison(std::string_view one, std::int64_t a, std::string_view other, std::int64_t b,
                    std::vector<std::string>& traits) {
  if (a != b) traits.push_back(fmt::format("{} {} {}", one, a < b ? "<" : ">", other));
}

void add_sizes(const Case& c, std::vector<std::string>& traits) {
  add_comparison("heads", c.heads, "kv_heads", c.kv_heads, traits);
  if (has_uneven_heads(c)) traits.emplace_back("heads that the ranks cannot split evenly");
  add_comparison("head_dim_qk", c.head_dim_qk, "head_dim_v", c.head_dim_v, traits);
  add_comparison("seqlen_q", c.seqlen_q, "seqlen_kv", c.seqlen_kv, traits);
  if (c.batch > 1) traits.emplace_back("several sequences");
  if (c.chunk > 0) traits.emplace_back("chunked attention");
  if (!c.mask.empty()) traits.emplace_back("a mask of slices");
  if (c.window[0] != kInfiniteWindow) traits.emplace_back("a window to the left");
  if (c.window[1] != kInfiniteWindow) traits.emplace_back("a window to the right");
}

void add_lengths(const Case& c, std::vector<std::string>& traits) {
  if (c.layout != Layout::thd) {
    if (c.pad_between_seqs) traits.emplace_back("a padded batch");
    return;
  }
  const SequenceLengths lengths = resolve_lengths(c);
  const auto differ = [](const std::vector<std::int64_t>& of) {
    return std::ranges::adjacent_find(of, std::ranges::not_equal_to{}) != of.end();
  };
  if (differ(lengths.valid_q) || differ(lengths.valid_kv)) traits.emplace_back("sequences of different lengths");
  if (lengths.valid_q != lengths.valid_kv) traits.emplace_back("sequences with more or fewer keys than queries");
  if (std::ranges::count(lengths.valid_q, 0) > 0) traits.emplace_back("a sequence without queries");
  if (std::ranges::count(lengths.valid_kv, 0) > 0) traits.emplace_back("a sequence without keys");
}

Case plainest_case() {
  Case c;
  c.dtype = DType::fp32;
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = c.heads = c.kv_heads = c.head_dim_qk = c.head_dim_v = 1;
  c.training = false;
  return c;
}

// Features of an adapter whose traits have other names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kTraitsOfFeatures{
    {{"window", "a window to the left"},
     {"window", "a window to the right"},
     {"chunk", "chunked attention"},
     {"mask", "a mask of slices"},
     {"gqa", "heads > kv_heads"},
     {"uneven_heads", "heads that the ranks cannot split evenly"},
     {"mla", "head_dim_qk "},
     {"padded_batch", "a padded batch"},
     {"unequal", "seqlen_q "},
     {"unequal", "sequences with more or fewer keys than queries"}}};

// Returns the text between the two; empty if it does not have both.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const std::size_t begin = text.find(before);
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin + before.size());
  const std::size_t end = text.find(after);
  return end == std::string_view::npos ? std::string_view{} : text.substr(0, end);
}

bool is_trait_of_feature(std::string_view trait, std::string_view feature) {
  const std::string_view field = trait.substr(0, trait.find_first_of("= "));
  const std::size_t equals = trait.find('=');
  const bool is_field = field == feature || (equals != std::string_view::npos && trait.substr(equals + 1) == feature);
  return is_field || std::ranges::any_of(kTraitsOfFeatures, [&](const auto& known) {
           return known.first == feature && trait.starts_with(known.second);
         });
}

}  // namespace

std::vector<std::string> traits_refused_by(std::string_view reason, const std::vector<std::string>& traits) {
  const std::string_view feature = between(reason, "does not declare the feature '", "'");
  const std::string_view value = between(reason, " does not declare ", " in ");
  std::vector<std::string> refused;
  for (const std::string& trait : traits) {
    const bool named = !feature.empty()                                     ? is_trait_of_feature(trait, feature)
                       : !value.empty()                                     ? trait.ends_with(fmt::format("={}", value))
                       : reason.find(" declares max_ranks=") != reason.npos ? trait.starts_with("cp_size=")
                       : reason.starts_with("the case trains, and the adapter") ? trait == "training=true"
                                                                                : false;
    if (named) refused.push_back(trait);
  }
  return refused;
}

std::vector<std::string> traits_of(const Case& c) {
  std::vector<std::string> traits;
  add_fields(c, traits);
  add_sizes(c, traits);
  add_lengths(c, traits);
  std::ranges::sort(traits);
  return traits;
}

std::vector<std::string> special_traits_of(const Case& c) {
  static const std::vector<std::string> plain = traits_of(plainest_case());
  std::vector<std::string> special;
  std::ranges::set_difference(traits_of(c), plain, std::back_inserter(special));
  std::erase_if(special, [](const std::string& trait) { return has(kFewValues, trait.substr(0, trait.find('='))); });
  return special;
}

}  // namespace cp_pool::search
