// The two halves of an unmap, for KvGroup: which transaction is pending, and how the last ones
// ended.
#include <algorithm>
#include <string>
#include <utility>

#include "kvcore/memory/kv_group.h"

namespace kv {
namespace {

// How many ended transactions a group remembers, for retries of a lost reply. A client has one
// pending per group and retries that one before it begins another.
constexpr std::size_t kEndedKept = 256;
constexpr std::size_t kLongestName = 256;  // bytes, of each of them

}  // namespace

Status KvGroup::check_transaction(const char* operation, std::string_view transaction) const {
  if (!transaction.empty() && transaction.size() <= kLongestName) return {};
  return Status::error(Code::kInvalidArgument, operation, name(), 0,
                       "the transaction's name has " + std::to_string(transaction.size()) +
                           " bytes, expected 1 to " + std::to_string(kLongestName));
}

const KvGroup::Transaction* KvGroup::find_ended(std::string_view transaction) const {
  // From the back: a retry is about a late one.
  const auto found =
      std::find_if(ended_.rbegin(), ended_.rend(),
                   [transaction](const Transaction& entry) { return entry.id == transaction; });
  return found == ended_.rend() ? nullptr : &*found;
}

void KvGroup::end_pending(bool committed) {
  for (const std::int64_t offset : pending_->offsets) {
    if (const auto slot = slots_.find(offset); slot != slots_.end()) slot->second.prepared = false;
  }
  pending_->committed = committed;
  ended_.push_back(std::move(*pending_));
  pending_.reset();
  if (ended_.size() > kEndedKept) ended_.pop_front();
}

Status KvGroup::prepare_unmap(const Offsets& offsets, std::string_view transaction) {
  constexpr const char* kOperation = "allocator.prepare_unmap";
  KV_RETURN_IF_ERROR(check_transaction(kOperation, transaction));
  KV_RETURN_IF_ERROR(check(kOperation, offsets));
  const std::string object = name() + ", transaction " + std::string(transaction);
  Offsets in_order = sorted(offsets);
  const bool again = pending_ && pending_->id == transaction;
  if (const Transaction* known = again ? &*pending_ : find_ended(transaction)) {
    if (known->offsets != in_order) {
      return Status::error(Code::kFailedPrecondition, kOperation, object, 0,
                           "it was prepared with other offsets: " + list(known->offsets));
    }
    if (again || known->committed) return {};
    return Status::error(Code::kFailedPrecondition, kOperation, object, 0, "it was aborted");
  }
  if (pending_) {
    return Status::error(Code::kFailedPrecondition, kOperation, object, 0,
                         "transaction " + pending_->id + " is pending");
  }
  KV_RETURN_IF_ERROR(check_mapped(kOperation, offsets, /*prepared=*/false));
  for (const std::int64_t offset : offsets) slots_.at(offset).prepared = true;
  pending_ = Transaction{std::string(transaction), std::move(in_order), false};
  return {};
}

// What commit_unmap() would refuse, it says itself.
Result<bool> KvGroup::takes_pages(std::string_view transaction) const {
  return usable_ && pending_ && pending_->id == transaction && !pending_->offsets.empty();
}

Status KvGroup::commit_unmap(std::string_view transaction) {
  constexpr const char* kOperation = "allocator.commit_unmap";
  KV_RETURN_IF_ERROR(check_transaction(kOperation, transaction));
  KV_RETURN_IF_ERROR(check(kOperation, {}));
  const std::string object = name() + ", transaction " + std::string(transaction);
  if (!pending_ || pending_->id != transaction) {
    const Transaction* ended = find_ended(transaction);
    if (ended == nullptr) {
      return Status::error(Code::kNotFound, kOperation, object, 0, "it was not prepared");
    }
    if (ended->committed) return {};
    return Status::error(Code::kFailedPrecondition, kOperation, object, 0, "it was aborted");
  }
  KV_RETURN_IF_ERROR(check_mapped(kOperation, pending_->offsets, /*prepared=*/true));
  bool off = false;
  Status status = take_off(kOperation, pending_->offsets, &off);
  // Not off: the pages are where they were, and the transaction may be committed again or aborted.
  if (off) end_pending(/*committed=*/true);
  return status;
}

Status KvGroup::abort_unmap(std::string_view transaction) {
  constexpr const char* kOperation = "allocator.abort_unmap";
  KV_RETURN_IF_ERROR(check_transaction(kOperation, transaction));
  KV_RETURN_IF_ERROR(check(kOperation, {}));
  if (pending_ && pending_->id == transaction) {
    end_pending(/*committed=*/false);
    return {};
  }
  const std::string object = name() + ", transaction " + std::string(transaction);
  const Transaction* ended = find_ended(transaction);
  if (ended == nullptr) {
    return Status::error(Code::kNotFound, kOperation, object, 0, "it was not prepared");
  }
  if (!ended->committed) return {};
  return Status::error(Code::kFailedPrecondition, kOperation, object, 0, "it was committed");
}

}  // namespace kv
