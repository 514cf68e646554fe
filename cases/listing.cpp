#include "cases/listing.h"

#include "cases/case_json.h"

namespace cp_pool {

Json list_as_json(std::span<const MatrixCase> cases) {
  Json list = Json::array();
  for (const MatrixCase& entry : cases) {
    Json item = Json::object();
    item["id"] = entry.id;
    item["world_size"] = entry.c.cp_size;
    item["size"] = entry.size;
    item["tags"] = entry.tags;
    item["case"] = to_json(entry.c);
    list.push_back(std::move(item));
  }
  return list;
}

std::map<std::string, std::size_t> count_by_suite(std::span<const MatrixCase> cases) {
  std::map<std::string, std::size_t> counts;
  for (const MatrixCase& entry : cases) ++counts[entry.c.suite];
  return counts;
}

}  // namespace cp_pool
