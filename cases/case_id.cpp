#include "cases/case_id.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include <fmt/format.h>

#include "cases/text_hash.h"
#include "cases/utf8.h"

namespace cp_pool {

namespace {

// File systems allow names of 255 bytes. Callers append ".rank12.json" and the like.
constexpr std::size_t kMostBytes = 200;

}  // namespace

std::string case_file_name(std::string_view id) {
  std::string name;
  for (const char letter : id) name += letter == '/' ? std::string("__") : std::string(1, letter);
  if (name.size() <= kMostBytes) return name;
  const std::string hash = text_hash(id);
  std::size_t kept = kMostBytes - hash.size() - 1;
  while (kept > 0 && !starts_code_point(name[kept])) --kept;
  return name.substr(0, kept) + '-' + hash;
}

namespace {

constexpr std::array<std::string_view, 7> kAlwaysShown{"suite", "model",           "comm", "cp_size", "layout",
                                                       "dtype", "pad_between_seqs"};

std::string part(const CaseField& field, const Case& c) {
  if (field.name == "training") return c.training ? "" : "fwd";
  if (field.name == "deterministic") return c.deterministic ? "deterministic" : "";
  if (field.name == "strided") return c.strided ? "strided" : "";
  if (field.name == "all_queries") return c.all_queries ? "all_queries" : "";
  if (field.name == "max_logit") return c.max_logit ? "max_logit" : "";
  return fmt::format("{}={}", field.name, field_text(field, c));
}

}  // namespace

std::string case_id(const Case& c, std::span<const CaseField* const> also) {
  std::string id = fmt::format("{}/{}/{}/cp{}/{}/{}{}", c.suite, c.model, to_string(c.comm), c.cp_size,
                               to_string(c.layout), to_string(c.dtype), c.pad_between_seqs ? "/pad" : "");
  for (const CaseField* field : also) {
    if (std::ranges::find(kAlwaysShown, field->name) != kAlwaysShown.end()) continue;
    if (const std::string text = part(*field, c); !text.empty()) id += "/" + text;
  }
  return id;
}

}  // namespace cp_pool
