// The frame of a subject: a class that collects the hypotheses of one file.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "cp_core/diagnosis/hypothesis.h"

namespace cp_pool::diagnosis {

class Subject {
 public:
  Subject(const World& world, const Symptoms& symptoms) : world_(world), c_(world.c()), symptoms_(symptoms) {}

 protected:
  // Each adds a hypothesis that has this member, and returns it.
  Hypothesis& pass(std::string id, std::string says, std::function<void(const World&, Pass&)> change) {
    return all_.emplace_back(Hypothesis{.id = std::move(id), .says = std::move(says), .pass = std::move(change)});
  }
  Hypothesis& model(std::string id, std::string says, std::function<void(Model&)> change,
                    Hypothesis::Level level = Hypothesis::Level::forward) {
    return all_.emplace_back(
        Hypothesis{.id = std::move(id), .says = std::move(says), .model = std::move(change), .level = level});
  }
  Hypothesis& backward(std::string id, std::string says, std::function<void(Model&)> change) {
    return model(std::move(id), std::move(says), std::move(change), Hypothesis::Level::backward);
  }
  Hypothesis& sums(std::string id, std::string says, std::function<void(Model&)> change) {
    return model(std::move(id), std::move(says), std::move(change), Hypothesis::Level::sums);
  }
  Hypothesis& results(std::string id, std::string says, std::function<void(const World&, WholeResults&)> change) {
    return all_.emplace_back(Hypothesis{.id = std::move(id), .says = std::move(says), .results = std::move(change)});
  }

  const World& world_;
  const Case& c_;
  const Symptoms& symptoms_;
  Hypotheses all_;
};

}  // namespace cp_pool::diagnosis
