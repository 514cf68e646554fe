#include "cp_core/context_parallel/scattered_gradients.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "cp_core/context_parallel/all_gather_plans.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {
namespace {

constexpr std::size_t kMostPieces = 4;  // up to this many pieces of a part are sent unpacked, each as a message

// Returns the copies of those `rows` that a rank owns, with the rank's own rows as targets. Targets of `rows` and of
// `owned` are rows of whole sequences.
std::vector<RowCopy> rows_of_owner(const std::vector<RowCopy>& rows, const std::vector<RowCopy>& owned) {
  std::vector<RowCopy> result;
  auto own = owned.begin();
  for (const RowCopy& range : rows) {
    while (own != owned.end() && own->target + own->count <= range.target) ++own;
    for (auto it = own; it != owned.end() && it->target < range.target + range.count; ++it) {
      const std::int64_t first = std::max(range.target, it->target);
      const std::int64_t end = std::min(range.target + range.count, it->target + it->count);
      result.push_back({.source = range.source + first - range.target,
                        .target = it->source + first - it->target,
                        .count = end - first});
    }
  }
  return result;
}

// The number of rows, whose sources may have gaps. (row_count() is for rows without gaps.)
std::int64_t count_of(const std::vector<RowCopy>& rows) {
  std::int64_t count = 0;
  for (const RowCopy& piece : rows) count += piece.count;
  return count;
}

// The same pieces with sources that lie one after the other from row `next` on.
std::vector<RowCopy> moved(std::vector<RowCopy> pieces, std::int64_t next) {
  for (RowCopy& piece : pieces) {
    piece.source = next;
    next += piece.count;
  }
  return pieces;
}

// Joins pieces that lie one after the other in the sender's tensor. Returns the row ranges to send, each as a message
// unless must_be_copied().
std::vector<RowRange> messages_of(const std::vector<RowCopy>& pieces) {
  std::vector<RowRange> messages;
  for (const RowCopy& piece : pieces) {
    if (!messages.empty() && messages.back().row + messages.back().count == piece.source) {
      messages.back().count += piece.count;
    } else {
      messages.push_back({.row = piece.source, .count = piece.count});
    }
  }
  return messages;
}

bool must_be_copied(const std::vector<RowCopy>& pieces) {
  return messages_of(pieces).size() > kMostPieces;
}

// Appends a message for each of the two tensors, dk and dv. rows: the rows of the tensors that the message carries.
void append(std::vector<Communicator::Message>& messages, const std::array<at::Tensor, 2>& tensors,
            const RowRange& rows, int peer) {
  for (const at::Tensor& tensor : tensors) {
    messages.push_back({.tensor = tensor.narrow(0, rows.row, rows.count), .peer = peer});
  }
}

// Appends the messages by which pieces arrive in the inbox one after the other, from row `next` on.
void append_pieces(std::vector<Communicator::Message>& messages, const std::array<at::Tensor, 2>& inbox,
                   const std::vector<RowCopy>& pieces, std::int64_t next, int from) {
  if (must_be_copied(pieces)) return append(messages, inbox, {.row = next, .count = count_of(pieces)}, from);
  for (const RowRange& message : messages_of(pieces)) {
    append(messages, inbox, {.row = next, .count = message.count}, from);
    next += message.count;
  }
}

// The parts of dk and dv that a rank sends.
struct SentParts {
  at::ScalarType dtype;
  std::vector<std::vector<RowCopy>> rows;  // the rows of each part
};

SentParts parts_sent_by(int rank, const Context& context, const AttentionOperands& whole) {
  const auto calls = others_calls(context, others_plans(context.problem, context.groups.cp->size(), rank), whole);
  if (!calls) return {.dtype = at::kFloat, .rows = {{{.source = 0, .target = 0, .count = whole.k.size(0)}}}};
  SentParts sent{.dtype = whole.q.scalar_type(), .rows = {}};
  for (const std::vector<TilePlan>& step : *calls) {
    for (const TilePlan& call : step) sent.rows.push_back(key_rows_of(tiles_of(call)));
  }
  return sent;
}

}  // namespace

ScatteredGradients::ScatteredGradients(const Context& context, const std::vector<RowCopy>& order)
    : context_(context), cp_(*context.groups.cp), windows_(cp_.windows()) {
  const std::int64_t rows = count_of(order);
  const std::vector<RowCopy> as_is{{.source = 0, .target = 0, .count = rows}};
  for (int rank = 0; rank < cp_.size(); ++rank) {
    owned_.push_back(copies_of_rank(CP_MUTATE(reduce_scatter_slice, order, as_is), rank, rows / cp_.size()));
  }
}

void ScatteredGradients::make_inboxes(const AttentionOperands& whole) {
  for (int rank = 0; rank < cp_.size(); ++rank) {
    if (rank != cp_.rank()) receive(rank, whole);
  }
}

void ScatteredGradients::send_all(const std::vector<KeyGradients>& own) {
  constexpr std::string_view kWhat = "all_gather backward dK and dV";
  work_ = puts() ? put(own, kWhat) : exchange(own, kWhat);
}

void ScatteredGradients::add_to(RowSum& dk, RowSum& dv) {
  if (CP_MUTATE(all_gather_dkv_wait_skipped, true, false)) work_->wait();
  sends_.clear();
  receives_.clear();
  sources_.clear();
  inboxes_.clear();
  dk.add_last(std::move(dk_));
  dv.add_last(std::move(dv_));
}

// Puts the parts one after the other into the inboxes, as receive() expects them.
Communicator::WorkPtr ScatteredGradients::put(const std::vector<KeyGradients>& own, std::string_view what) {
  std::vector<PeerWindows::Put> all;
  for (const KeyGradients& part : own) {
    for (const at::Tensor& tensor : {part.dk.tensor, part.dv.tensor}) sources_.push_back(tensor);
  }
  for (int rank = 0; rank < cp_.size(); ++rank) {
    if (rank == cp_.rank()) continue;
    const std::size_t window = 2 * static_cast<std::size_t>(cp_.rank() < rank ? cp_.rank() : cp_.rank() - 1);
    std::int64_t next = 0;
    for (const KeyGradients& part : own) {
      for (const RowRange& rows : messages_of(rows_of_owner(part.dk.rows, owned_by(rank)))) {
        const RowCopy to_inbox{.source = rows.row, .target = next, .count = rows.count};
        all.push_back(put_rows(part.dk.tensor, to_inbox, rank, window));
        all.push_back(put_rows(part.dv.tensor, to_inbox, rank, window + 1));
        next += rows.count;
      }
    }
  }
  return windows_->put_all(inboxes_, sources_, all, what);
}

Communicator::WorkPtr ScatteredGradients::exchange(const std::vector<KeyGradients>& own, std::string_view what) {
  for (const KeyGradients& part : own) send(part);
  return cp_.exchange_all(sends_, receives_, what);
}

void ScatteredGradients::send(const KeyGradients& part) {
  std::vector<std::vector<RowCopy>> pieces;  // by rank
  std::vector<RowCopy> copies;
  std::int64_t copied_rows = 0;
  for (int rank = 0; rank < cp_.size(); ++rank) {
    pieces.push_back(rank == cp_.rank() ? std::vector<RowCopy>() : rows_of_owner(part.dk.rows, owned_by(rank)));
    if (!must_be_copied(pieces.back())) continue;
    for (const RowCopy& piece : pieces.back()) {
      copies.push_back({.source = piece.source, .target = copied_rows, .count = piece.count});
      copied_rows += piece.count;
    }
  }
  std::array<at::Tensor, 2> copied{make_inbox(part.dk.tensor, copied_rows, part.dk.tensor.scalar_type()),
                                   make_inbox(part.dv.tensor, copied_rows, part.dv.tensor.scalar_type())};
  copy_rows(part.dk.tensor, copied[0], copies);
  copy_rows(part.dv.tensor, copied[1], copies);
  std::int64_t next = 0;
  for (int rank = 0; rank < cp_.size(); ++rank) {
    const std::vector<RowCopy>& of_rank = pieces[static_cast<std::size_t>(rank)];
    if (must_be_copied(of_rank)) {
      append(sends_, copied, {.row = next, .count = count_of(of_rank)}, rank);
      next += count_of(of_rank);
      continue;
    }
    for (const RowRange& message : messages_of(of_rank)) {
      append(sends_, {part.dk.tensor, part.dv.tensor}, message, rank);
    }
  }
}

void ScatteredGradients::receive(int from, const AttentionOperands& whole) {
  const SentParts sent = parts_sent_by(from, context_, whole);
  std::vector<std::vector<RowCopy>> parts;  // each part's copies from the sender's tensor to rows of this rank
  std::int64_t rows = 0;
  for (const std::vector<RowCopy>& part : sent.rows) {
    parts.push_back(rows_of_owner(part, owned_by(cp_.rank())));
    rows += count_of(parts.back());
  }
  const std::array inbox{make_inbox(whole.k, rows, sent.dtype), make_inbox(whole.v, rows, sent.dtype)};
  inboxes_.insert(inboxes_.end(), inbox.begin(), inbox.end());
  std::int64_t next = 0;
  for (const std::vector<RowCopy>& pieces : parts) {
    const std::int64_t first = next;
    next += count_of(pieces);
    if (!puts()) append_pieces(receives_, inbox, pieces, first, from);
    if (pieces.empty() || CP_MUTATE(later_calls_dropped, false, &pieces != &parts.front())) continue;
    const std::vector<RowCopy> arrived = moved(pieces, first);
    dk_.push_back({.tensor = inbox[0], .rows = arrived});
    dv_.push_back({.tensor = inbox[1], .rows = arrived});
  }
}

}  // namespace cp_pool
