#include "cases/case_id.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace cp_pool {
namespace {

constexpr std::array<std::string_view, 7> kAlwaysShown{"suite", "model",           "comm", "cp_size", "layout",
                                                       "dtype", "pad_between_seqs"};

std::string part(const CaseField& field, const Case& c) {
  if (field.name == "training") return c.training ? "" : "fwd";
  if (field.name == "deterministic") return c.deterministic ? "deterministic" : "";
  if (field.name == "strided") return c.strided ? "strided" : "";
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
