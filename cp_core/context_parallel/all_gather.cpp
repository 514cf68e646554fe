// All-gather context parallelism. Every rank gathers K and V of all ranks and puts them in sequence order. During the
// transfer a rank computes attention over its own K and V. It then attends to those of the others in two steps, one for
// each of its chunks of queries. The backward sends the gradients of other ranks' K and V to their owners, either as
// the kernels rounded them or summed in fp32, and may compute the gradients of its own K and V during the transfer. The
// backward gathers K and V again, so that no rank keeps whole sequences.
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/maximum.h>
#include <fmt/format.h>

#include "cp_core/context_parallel/all_gather_plans.h"
#include "cp_core/context_parallel/comm_steps.h"
#include "cp_core/context_parallel/core.h"
#include "cp_core/context_parallel/scattered_gradients.h"
#include "cp_core/context_parallel/second_stream.h"
#include "cp_core/context_parallel/step_gradients.h"
#include "cp_core/cuda/device.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {
namespace {

// Gathers K and V of the other ranks into tensors in sequence order. This rank's own rows are left uninitialised, since
// nothing reads them there. Where ranks have windows, each rank puts its rows to their places in the others' tensors.
// Otherwise rows are sent straight to their places if that takes few messages. If it does not, one message has all rows
// of a rank, and the receiver copies them to their places.
class GatheredKeyValues {
 public:
  // Starts the exchange. copies: from the rows of all ranks, rank by rank, to whole sequences. pass: for error texts.
  // cp must outlive this, and the operands' K and V must not change before wait().
  GatheredKeyValues(Communicator& cp, const AttentionOperands& operands, std::vector<RowCopy> copies, Pass pass);

  // The operands with K and V of all ranks in sequence order. Values are valid only after wait().
  [[nodiscard]] const AttentionOperands& whole() const { return whole_; }

  void wait();

 private:
  [[nodiscard]] bool sends_in_place() const;
  [[nodiscard]] std::vector<RowCopy> pieces(int rank) const;
  Communicator::WorkPtr put(PeerWindows& through, const AttentionOperands& operands, const std::string& what);
  Communicator::WorkPtr exchange(const AttentionOperands& operands, const std::string& what);

  Communicator& cp_;
  std::vector<RowCopy> copies_;
  std::int64_t rows_;  // rows of each rank
  AttentionOperands whole_;
  at::Tensor arriving_k_;
  at::Tensor arriving_v_;
  bool copied_ = false;
  Communicator::WorkPtr work_;
};

GatheredKeyValues::GatheredKeyValues(Communicator& cp, const AttentionOperands& operands, std::vector<RowCopy> copies,
                                     Pass pass)
    : cp_(cp), copies_(std::move(copies)), rows_(operands.k.size(0)), whole_(operands) {
  const auto make = [&](const at::Tensor& like) { return make_inbox(like, cp.size() * rows_, like.scalar_type()); };
  whole_.k = make(operands.k);
  whole_.v = make(operands.v);
  const std::string what = fmt::format("all_gather {} K and V", name_of(pass));
  if (PeerWindows* opened = cp_.windows()) {
    work_ = put(*opened, operands, what);
    return;
  }
  copied_ = !sends_in_place();
  arriving_k_ = copied_ ? make(operands.k) : whole_.k;
  arriving_v_ = copied_ ? make(operands.v) : whole_.v;
  work_ = exchange(operands, what);
}

void GatheredKeyValues::wait() {
  if (CP_MUTATE(all_gather_wait_skipped, true, false)) work_->wait();
  if (!copied_) return;
  std::vector<RowCopy> copies;
  for (int rank = 0; rank < cp_.size(); ++rank) {
    if (rank == cp_.rank()) continue;
    for (RowCopy copy : copies_of_rank(copies_, rank, rows_)) {
      copy.source += rank * rows_;
      copies.push_back(copy);
    }
  }
  copy_rows(arriving_k_, whole_.k, copies);
  copy_rows(arriving_v_, whole_.v, copies);
}

// Whether rows are sent straight to their places; the same on every rank. NCCL needs 6 us for each further message, in
// which a GPU copies 10 MiB. On CPU ranks all pieces make one message.
bool GatheredKeyValues::sends_in_place() const {
  constexpr std::size_t kPiecesOfARank = 8;
  constexpr std::size_t kLongPiece = std::size_t{8} << 20U;
  if (copies_.size() > kPiecesOfARank * static_cast<std::size_t>(cp_.size())) return false;
  return whole_.k.is_cpu() || whole_.k.nbytes() >= kLongPiece * copies_.size();
}

// The copies from the places of a rank's rows in its tensors to the places where they arrive.
std::vector<RowCopy> GatheredKeyValues::pieces(int rank) const {
  if (copied_) return {{.source = 0, .target = rank * rows_, .count = rows_}};
  return copies_of_rank(copies_, rank, rows_);
}

Communicator::WorkPtr GatheredKeyValues::put(PeerWindows& through, const AttentionOperands& operands,
                                             const std::string& what) {
  const std::array sources{operands.k, operands.v};
  const std::array windows{whole_.k, whole_.v};
  const std::vector<RowCopy> own = pieces(cp_.rank());
  std::vector<PeerWindows::Put> puts;
  for (int rank = 0; rank < cp_.size(); ++rank) {
    if (rank == cp_.rank()) continue;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      for (const RowCopy& piece : own) puts.push_back(put_rows(sources[i], piece, rank, i));
    }
  }
  return through.put_all(windows, sources, puts, what);
}

Communicator::WorkPtr GatheredKeyValues::exchange(const AttentionOperands& operands, const std::string& what) {
  std::vector<Communicator::Message> sends;
  std::vector<Communicator::Message> receives;
  for (int rank = 0; rank < cp_.size(); ++rank) {
    if (rank == cp_.rank()) continue;
    for (const RowCopy& piece : pieces(cp_.rank())) {
      for (const at::Tensor& rows : {operands.k, operands.v}) {
        sends.push_back({.tensor = rows.narrow(0, piece.source, piece.count), .peer = rank});
      }
    }
    for (const RowCopy& piece : pieces(rank)) {
      for (const at::Tensor& rows : {arriving_k_, arriving_v_}) {
        receives.push_back({.tensor = rows.narrow(0, piece.target, piece.count), .peer = rank});
      }
    }
  }
  return cp_.exchange_all(sends, receives, what);
}

// Returns the copies from the rows of all ranks, rank by rank, to whole sequences.
std::vector<RowCopy> to_sequence_order(const Context& context) {
  const std::vector<std::int64_t>& padded = context.problem.lengths.padded_kv;
  const int ranks = context.groups.cp->size();
  const std::vector<Run> whole = whole_runs(padded);
  return row_copies(CP_MUTATE(gathered_rows_not_reordered, gathered_runs(padded, ranks, 0, ranks), whole), whole);
}

AllGatherPlans plans_of(const Context& context) {
  return all_gather_plans(context.problem, context.groups.cp->size(), context.groups.cp->rank());
}

// True if a step merges each query row at most once.
bool merges_once(const Context& context, const TilePlan& plan, const AttentionOperands& operands) {
  return plan.empty() || (plan.size() == 1 && context.backend.parts(plan.front(), operands).size() == 1);
}

// Computes the two steps with other ranks' K and V, the second on a stream of its own, and merges them into the result
// of the step with the rank's own K and V. The two steps write different rows of out and lse; each has its own
// max_logit, which are merged at the end.
void attend_steps(const Context& context, const AllGatherPlans& plans, const AttentionOperands& operands,
                  AttentionSums& sums) {
  const bool round = context.problem.softmax == SoftmaxType::vanilla && merges_once(context, plans[1], operands) &&
                     merges_once(context, plans[2], operands);
  // From here on both streams write to the same tensors, so they must be allocated and filled before.
  fill_if_empty(sums);
  if (!round) widen(sums);
  AttentionSums second_sums = sums;
  if (sums.max_logit.defined()) second_sums.max_logit = sums.max_logit.clone();
  SecondStream second(operands.q.device());
  attend(context.backend, plans[1], operands, sums, Then::nothing);
  second.run([&] { attend(context.backend, plans[2], operands, second_sums, Then::nothing); });
  if (CP_MUTATE(max_logit_before_join, true, false)) second.join();
  if (sums.max_logit.defined()) sums.max_logit = at::maximum(sums.max_logit, second_sums.max_logit);
}

// The backward by calls whose gradients are sent as the kernels rounded them: nothing is summed, and no step waits for
// another. The step with the rank's own K and V may be divided into groups of heads: the first group is computed before
// the steps with other ranks' K and V and the rest after them, so that this step overlaps both exchanges.
OthersGradients attend_calls_backward(const Context& context, const OthersCalls& calls, GatheredKeyValues& gathered,
                                      const AttentionBackwardOperands& backward, StepGradients& gradients,
                                      ScatteredGradients& scattered) {
  const AttentionOperands& operands = gathered.whole();
  SecondStream second(operands.q.device());
  StreamTurns turns(&second);
  turns.next([&] { gradients.start_own(); });
  OthersGradients others;
  bool waited = false;
  const auto compute = [&](const TilePlan& call) {
    if (std::exchange(waited, true)) {
      second.wait_for_mark();
    } else {
      gathered.wait();
      second.mark();
    }
    delay_point(operands.q.device());
    const std::span<const Tile> tiles = tiles_of(call);
    PackedGradients called = context.backend.called_gradients(call, operands, backward);
    for (const at::Tensor& tensor : {called.dq, called.dk, called.dv}) second.hand_over(tensor);
    others.dq.push_back({.tensor = std::move(called.dq), .rows = query_rows_of(tiles)});
    others.parts.push_back({.dk = {.tensor = std::move(called.dk), .rows = key_rows_of(tiles)},
                            .dv = {.tensor = std::move(called.dv), .rows = key_rows_of(tiles)}});
  };
  for (const std::vector<TilePlan>& step : calls) {
    for (const TilePlan& call : step) turns.next([&] { compute(call); });
  }
  if (!waited) gathered.wait();
  scattered.make_inboxes(operands);
  const auto send = [&] {
    second.wait_for_other();
    scattered.send_all(others.parts);
  };
  // Without puts send_all() may make copies, which must be allocated on the first stream.
  if (scattered.puts()) {
    turns.again(send);
  } else {
    send();
  }
  turns.next([&] { gradients.finish_own(); });
  second.join();
  return others;
}

// The backward of the steps with other ranks' K and V by calls that add to fp32 sums. It comes after the step with the
// rank's own K and V, or after the first group of its heads. Both steps add to dk, dv and dbias. The second step
// computes beside the first, but adds after it. No second set of sums is needed, which would take as much memory as K
// and V of all ranks in fp32; and the order of additions, and with it the bits, is always the same.
OthersGradients attend_steps_backward(const Context& context, const AllGatherPlans& plans,
                                      const AttentionOperands& operands, const AttentionBackwardOperands& backward,
                                      const at::Tensor& dbias) {
  SecondStream second(operands.q.device());
  delay_point(operands.q.device());
  PackedGradients sums = make_gradient_sums(operands);
  sums.dbias = dbias;
  attend_backward(context.backend, plans[1], operands, backward, {.sums = sums});
  second.mark();
  second.run([&] {
    attend_backward(context.backend, plans[2], operands, backward,
                    {.sums = sums, .turn = [&second] { second.wait_for_mark(); }});
  });
  second.join();
  return {.dq = {all_rows(sums.dq)}, .parts = {{.dk = all_rows(sums.dk), .dv = all_rows(sums.dv)}}};
}

// Prepares the backend for all calls of one pass. own: the rank's operands. whole: the operands with K and V of all
// ranks. Only sizes, strides and dtypes are read.
void get_ready_for_steps(FastBackend& backend, const AllGatherPlans& plans, const AttentionOperands& own,
                         const AttentionOperands& whole, Pass pass) {
  backend.get_ready({plans.data(), 1}, own, pass);
  backend.get_ready({plans.data() + 1, 2}, whole, pass);
  const std::int64_t groups = pass == Pass::backward ? backend.head_groups(plans.front(), own) : 1;
  if (groups > 1) backend.get_ready({plans.data(), 1}, narrowed(own, {.index = 0, .count = groups}), pass);
}

PackedForward all_gather_forward(const Context& context, const PackedInputs& inputs) {
  Communicator& cp = *context.groups.cp;
  const AttentionOperands& own = inputs.operands;
  GatheredKeyValues gathered(cp, own, to_sequence_order(context), Pass::forward);
  const AllGatherPlans plans = plans_of(context);
  get_ready_for_steps(context.backend, plans, own, gathered.whole(), Pass::forward);
  AttentionSums sums = make_empty_sums(own, context.problem.max_logit);
  attend(context.backend, plans[0], own, sums);
  gathered.wait();
  attend_steps(context, plans, gathered.whole(), sums);
  if (sums.max_logit.defined() && CP_MUTATE(max_logit_of_own_queries, true, false)) {
    cp.all_reduce(sums.max_logit, ReduceOp::max, "all_gather forward max_logit")->wait();
  }
  const std::vector<Run> q_runs = local_runs(context.problem.lengths.padded_q, cp.size(), cp.rank());
  return finish_forward(context.problem, q_runs, inputs.sink, own.q.scalar_type(), std::move(sums));
}

PackedGradients all_gather_backward(const Context& context, const PackedInputs& inputs,
                                    const AttentionBackwardOperands& backward, const SavedForward& /*saved*/) {
  Communicator& cp = *context.groups.cp;
  const AttentionOperands& own = inputs.operands;
  const std::vector<RowCopy> copies = to_sequence_order(context);
  GatheredKeyValues gathered(cp, own, copies, Pass::backward);
  const AllGatherPlans plans = plans_of(context);
  get_ready_for_steps(context.backend, plans, own, gathered.whole(), Pass::backward);
  StepGradients gradients(context, plans[0], context.backend.head_groups(plans[0], own), own, backward);
  ScatteredGradients scattered(context, copies);
  OthersGradients others;
  if (const auto calls = others_calls(context, {plans[1], plans[2]}, gathered.whole())) {
    others = attend_calls_backward(context, *calls, gathered, backward, gradients, scattered);
  } else {
    gradients.start_own();
    gathered.wait();
    others = attend_steps_backward(context, plans, gathered.whole(), backward, gradients.dbias());
    scattered.make_inboxes(gathered.whole());
    scattered.send_all(others.parts);
    gradients.finish_own();
  }
  for (SomeRows& dq : others.dq) gradients.add_dq(std::move(dq));
  RowSum dk = gradients.own_dk();
  RowSum dv = gradients.own_dv();
  scattered.add_to(dk, dv);
  return finish_backward(own, {.dq = gradients.dq(), .dk = dk.whole(), .dv = dv.whole(), .dbias = gradients.dbias()});
}

}  // namespace

CommSteps all_gather_steps() {
  return {
      .forward = all_gather_forward,
      .backward = all_gather_backward,
      .get_ready =
          [](const FutureRank& rank, Pass pass, FastBackend& backend) {
            get_ready_for_steps(backend, all_gather_plans(rank.problem, rank.ranks, rank.rank),
                                rank.operands_like({.q = rank.ranks, .kv = rank.ranks}),
                                rank.operands_like({.q = rank.ranks}), pass);
          },
  };
}

}  // namespace cp_pool
