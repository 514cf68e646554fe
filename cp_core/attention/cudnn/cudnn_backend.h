// The attention backend of cuDNN's fused attention: bf16 and fp16, a bias and its gradient, head dimensions of K and V
// that may differ.
#pragma once

#include <map>
#include <optional>

#include "cp_core/attention/backend.h"
#include "cp_core/attention/math/math_backend.h"

namespace cp_pool {

struct PlannedBatch;

// Gradients repeat bit by bit if at::globalContext().deterministicAlgorithms(). Where cuDNN refuses a tile with a bias,
// the math backend computes it; other refusals are thrown as BackendUnsupported.
class CudnnBackend final : public AttentionBackend {
 public:
  void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) override;
  void backward(const TileGroup& group, const AttentionOperands& operands,
                const AttentionBackwardOperands& backward_operands, PendingSums& pending) override;
  [[nodiscard]] std::string refusal(const Case& c) const override;
  [[nodiscard]] std::vector<std::string> remarks() const override;

  // Builds plans of cuDNN. May be called from any thread whose current device is the rank's.
  void get_ready(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass) override;
  [[nodiscard]] std::vector<Preparation> preparations(std::span<const TilePlan> plans, const AttentionOperands& like,
                                                      Pass pass, bool deterministic) const override;
  [[nodiscard]] bool computes_delta() const override { return true; }
  std::vector<CalledForward> forward_calls(const TileGroup& part, const AttentionOperands& operands) override;
  [[nodiscard]] bool contributes_once(const TilePlan& plan, const AttentionOperands& like) const override;
  PackedGradients called_gradients(const TilePlan& plan, const AttentionOperands& operands,
                                   const AttentionBackwardOperands& backward_operands) override;
  [[nodiscard]] std::int64_t head_groups(const TilePlan& plan, const AttentionOperands& like) const override;
  void gradients_of_heads(const TilePlan& plan, const AttentionOperands& operands,
                          const AttentionBackwardOperands& backward_operands, const PackedGradients& results) override;
  [[nodiscard]] std::int64_t pipeline_groups(const Pipeline& of) const override;
  [[nodiscard]] std::vector<TileGroup> parts(const TileGroup& group, const AttentionOperands& operands) const override;

 private:
  // Returns the plan of a tile with a bias. If cuDNN refuses the tile, returns nullopt and keeps the reason for
  // remarks(); the math backend computes the tile.
  std::optional<PlannedBatch> plan_or_remark(const Tile& tile, const AttentionOperands& operands, Pass pass,
                                             bool dbias);

  MathBackend math_;
  std::map<Pass, std::string> refusals_;  // the first refusal of a tile with a bias in each pass
};

}  // namespace cp_pool
