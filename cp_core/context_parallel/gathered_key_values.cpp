#include "cp_core/context_parallel/gathered_key_values.h"

#include <array>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "cp_core/mutation.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {

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
  copied_ = !go_straight();
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
bool GatheredKeyValues::go_straight() const {
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

}  // namespace cp_pool
