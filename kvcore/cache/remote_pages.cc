#include "kvcore/cache/remote_pages.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace kv {
namespace {

std::vector<std::size_t> indices(std::size_t n) {
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

// Workers say what kind of failure it was only in words.
Code code_of(std::string_view error_type, std::string_view words) {
  if (error_type == "map_quarantined") return Code::kQuarantined;
  if (error_type == "state_consistency") return Code::kFailedPrecondition;
  const std::string memory = ": " + std::string(code_name(Code::kOutOfMemory));
  return words.find(memory) != std::string_view::npos ? Code::kOutOfMemory : Code::kDriver;
}

}  // namespace

RemotePages::RemotePages(Clock& clock, std::vector<Peer> workers, RemoteOptions options)
    : clock_(clock),
      workers_(std::move(workers)),
      options_(std::move(options)),
      all_(indices(workers_.size())),
      pending_(workers_.size()) {}

// ---- requests and answers

RemotePages::Offsets RemotePages::offsets_of(const std::vector<std::int64_t>& pages) const {
  Offsets offsets;
  offsets.reserve(pages.size());
  for (const std::int64_t page : pages) {
    offsets.push_back(page * static_cast<std::int64_t>(options_.page_bytes));
  }
  return offsets;
}

Message RemotePages::request(std::string_view command) const {
  return {{"cmd", Value(command)}, {"group_id", options_.group}};
}

Message RemotePages::request(std::string_view command, const Offsets& offsets) const {
  return with(request(command), "offsets", Value::List(offsets.begin(), offsets.end()));
}

Message RemotePages::with(Message message, std::string_view key, Value value) {
  message.emplace_back(key, std::move(value));
  return message;
}

RemotePages::Answer RemotePages::judge(std::size_t worker, const Message& message,
                                       const Result<Message>& reply) const {
  Answer answer;
  answer.worker = worker;
  if (!reply.ok()) {
    answer.status = reply.error();
    answer.outcome = not_carried_out(answer.status) ? Outcome::kNotAsked : Outcome::kUnknown;
    return answer;
  }
  const Peer& peer = workers_[worker];
  const std::string object = "rank " + std::to_string(peer.rank) + " stage " +
                             std::to_string(peer.stage) + " " +
                             text_field(message, "cmd").value_or("");
  const Result<std::string> status = text_field(*reply, "status");
  if (!status.ok()) {
    answer.status = Status::error(Code::kProtocol, "remote.request", object, 0,
                                  std::string(status.error().text()));
    answer.outcome = Outcome::kUnknown;
  } else if (*status == "error") {
    const std::string words = text_field(*reply, "message").value_or("it does not say why");
    const Code code = code_of(text_field(*reply, "error_type").value_or(""), words);
    answer.status = Status::error(code, "remote.request", object, 0, words);
    answer.outcome = code == Code::kQuarantined          ? Outcome::kSetAside
                     : code == Code::kFailedPrecondition ? Outcome::kDisagrees
                                                         : Outcome::kRefused;
  } else {
    answer.changed = integers_field(*reply, "newly_mapped_offsets").value_or(Offsets());
  }
  return answer;
}

RemotePages::Answers RemotePages::ask(const Workers& workers, const Message& message) const {
  const bool bounded = options_.client.timeout > Nanos::zero();
  const Time limit = bounded ? deadline_after(clock_.now(), options_.client.timeout) : kNever;
  Answers answers;
  const auto once = [&](const Workers& asked, const Client::Options& options) {
    std::vector<Peer> peers;
    for (const std::size_t worker : asked) peers.push_back(workers_[worker]);
    const auto replies = Client(clock_, options).broadcast(peers, message);
    Answers got;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      got.push_back(judge(asked[i], message, replies[i]));
    }
    return got;
  };
  answers = once(workers, options_.client);
  Client::Options rest = options_.client;
  if (bounded) rest.timeout = limit - clock_.now();
  const Workers silent = those(answers, {Outcome::kUnknown, Outcome::kNotAsked});
  if (silent.empty() || (bounded && rest.timeout <= Nanos::zero())) return answers;
  for (Answer& second : once(silent, rest)) {
    Answer& first = *std::find_if(answers.begin(), answers.end(), [&second](const Answer& one) {
      return one.worker == second.worker;
    });
    if (first.outcome == Outcome::kUnknown) {
      // The first time may have done it, whatever is true of the second.
      if (second.outcome == Outcome::kNotAsked) continue;
      // What the first time mapped the second did not find missing. The batch's owner had none of
      // it mapped, so all of it is the batch's.
      if (second.outcome == Outcome::kDone) {
        second.changed = integers_field(message, "offsets").value_or(Offsets());
      }
    }
    first = std::move(second);
  }
  return answers;
}

Status RemotePages::failure(const Answers& answers) {
  const auto failed = std::find_if(answers.begin(), answers.end(),
                                   [](const Answer& answer) { return !answer.status.ok(); });
  return failed == answers.end() ? Status() : failed->status;
}

RemotePages::Workers RemotePages::those(const Answers& answers,
                                        std::initializer_list<Outcome> outcomes) {
  Workers workers;
  for (const Answer& answer : answers) {
    if (std::find(outcomes.begin(), outcomes.end(), answer.outcome) != outcomes.end()) {
      workers.push_back(answer.worker);
    }
  }
  return workers;
}

PageBackend::Done RemotePages::ended(const char* operation, const Offsets& pages, PageMap state,
                                     const Status& cause) const {
  Done done{cause, std::vector<PageMap>(pages.size(), state)};
  if (state == PageMap::kQuarantined) {
    done.status = Status::error(
        Code::kQuarantined, operation,
        "group " + std::to_string(options_.group) + ", " + std::to_string(pages.size()) + " pages",
        cause.native(),
        "not the same on all workers, or nobody knows; never handed out "
        "again: " +
            cause.to_string());
  }
  return done;
}

// ---- map

PageBackend::Done RemotePages::map(const std::vector<std::int64_t>& pages) {
  const Offsets offsets = offsets_of(pages);
  Answers answers = ask(all_, request("map_to_kv_tensors", offsets));
  const Status failed = failure(answers);
  if (failed.ok()) return {};
  const bool lost = !those(answers, {Outcome::kSetAside}).empty();
  // Whoever undoes it had done it. Where that is refused nobody knows: it may come to it yet.
  for (Answer& answer : answers) {
    if (answer.outcome == Outcome::kUnknown) answer.changed = offsets;
  }
  const bool undone = take_back(answers);
  return ended("remote.map", pages, undone && !lost ? PageMap::kUnmapped : PageMap::kQuarantined,
               failed);
}

bool RemotePages::take_back(const Answers& mapped) {
  // What a worker had before this batch, it keeps.
  std::map<Offsets, Workers> changed;
  for (const Answer& answer : mapped) {
    if (!answer.changed.empty()) changed[answer.changed].push_back(answer.worker);
  }
  const MutexLock lock(mutex_);
  // A worker that does not settle refuses below, if it is one of these.
  (void)settle();
  bool whole = true;
  for (const auto& [offsets, workers] : changed) {
    const std::string transaction = begin_transaction();
    Message message = request("prepare_unmap_from_kv_tensors", offsets);
    message = with(std::move(message), "transaction_id", transaction);
    const Answers answers = ask(workers, with(std::move(message), "commit", true));
    whole = whole && failure(answers).ok();
    for (const Answer& answer : answers) {
      std::string& pending = pending_[answer.worker];
      if (!answer.status.ok() && pending.empty()) pending = transaction;
    }
  }
  return whole;
}

// ---- unmap

std::string RemotePages::begin_transaction() {
  return options_.name + "-" + std::to_string(++transactions_);
}

// Whatever a worker says, the transaction is not pending there any more.
void RemotePages::abort(const Workers& workers, const std::string& transaction) {
  if (workers.empty()) return;
  const Message message =
      with(request("abort_unmap_from_kv_tensors"), "transaction_id", transaction);
  for (const Answer& answer : ask(workers, message)) {
    const bool silent = answer.outcome == Outcome::kUnknown || answer.outcome == Outcome::kNotAsked;
    pending_[answer.worker] = silent ? transaction : "";
  }
}

Status RemotePages::settle() {
  std::map<std::string, Workers> left;
  for (const std::size_t worker : all_) {
    if (!pending_[worker].empty()) left[pending_[worker]].push_back(worker);
  }
  for (const auto& [transaction, workers] : left) abort(workers, transaction);
  for (const std::size_t worker : all_) {
    if (pending_[worker].empty()) continue;
    return Status::error(Code::kUnavailable, "remote.unmap",
                         "rank " + std::to_string(workers_[worker].rank) + " stage " +
                             std::to_string(workers_[worker].stage),
                         0, "it does not answer to transaction " + pending_[worker]);
  }
  return {};
}

PageBackend::Done RemotePages::unmap(const std::vector<std::int64_t>& pages) {
  constexpr const char* kOperation = "remote.unmap";
  const Offsets offsets = offsets_of(pages);
  const MutexLock lock(mutex_);
  if (const Status status = settle(); !status.ok()) {
    return ended(kOperation, pages, PageMap::kMapped, status);
  }
  const std::string transaction = begin_transaction();
  const Answers answers = ask(
      all_, with(request("prepare_unmap_from_kv_tensors", offsets), "transaction_id", transaction));
  const Status failed = failure(answers);
  if (!failed.ok()) {
    // Nobody was told to commit, so the pages are where they were, also on those that are silent.
    abort(those(answers, {Outcome::kDone, Outcome::kUnknown}), transaction);
    const bool lost = !those(answers, {Outcome::kDisagrees, Outcome::kSetAside}).empty();
    return ended(kOperation, pages, lost ? PageMap::kQuarantined : PageMap::kMapped, failed);
  }
  PageMap state = PageMap::kUnmapped;
  const Status status = commit(offsets, transaction, &state);
  return status.ok() ? Done{} : ended(kOperation, pages, state, status);
}

Status RemotePages::commit(const Offsets& offsets, const std::string& transaction, PageMap* state) {
  const Message message =
      with(request("commit_unmap_from_kv_tensors"), "transaction_id", transaction);
  Answers answers = ask(all_, message);
  const Status failed = failure(answers);
  if (failed.ok()) return {};
  *state = PageMap::kQuarantined;
  for (const std::size_t worker : those(answers, {Outcome::kUnknown, Outcome::kNotAsked})) {
    pending_[worker] = transaction;
  }
  // Those that failed with the pages still there: they are mapped everywhere again.
  const Workers kept = those(answers, {Outcome::kRefused});
  abort(kept, transaction);
  const bool known = those(answers, {Outcome::kDone, Outcome::kRefused}).size() == answers.size() &&
                     std::all_of(kept.begin(), kept.end(),
                                 [this](std::size_t worker) KV_NO_THREAD_SAFETY_ANALYSIS {
                                   return pending_[worker].empty();
                                 });
  if (!known) return failed;
  const Answers back = ask(those(answers, {Outcome::kDone}), request("map_to_kv_tensors", offsets));
  if (failure(back).ok()) *state = PageMap::kMapped;
  return failed;
}

}  // namespace kv
