// What an operation of kvcore says when it is done: Status, or Result<T> when it also has a value.
//
// No exception leaves kvcore and nothing in it aborts; every failure is one of these. A Status that
// is fine is a null pointer: it costs nothing to make, move or test.
//
// Threads: a Status is a value; copies may be used on any thread.
// Ownership: a Status owns its description; copies share it (it never changes after it is made).
#ifndef KVCORE_BASE_STATUS_H_
#define KVCORE_BASE_STATUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace kv {

// What kind of failure it is: what a caller can do about it, not where it came from.
enum class Code : std::uint8_t {
  kOk = 0,
  kOutOfMemory,      // the device, the address space or the host is out of it; retry after freeing
  kInvalidArgument,  // the caller's mistake; a retry fails again
  kFailedPrecondition,  // right call, wrong state (not initialised, stopping, already started)
  kNotFound,            // no such group, transaction, tensor, listener, file
  kAlreadyExists,       // the name, path or group is taken
  kDeadline,            // a time limit of kv::Clock passed; the outcome may be unknown
  kCancelled,           // cut off by a stop
  kUnavailable,         // the peer is gone or nobody listens
  kDriver,              // the driver refused; native() is its CUresult
  kSystem,              // the kernel refused; native() is errno
  kProtocol,            // bytes from a peer that are not what the protocol says
  kQuarantined,         // done in part and could not be undone; what is affected is kept aside
  kInternal,            // a broken invariant of ours
};

// "out_of_memory", "driver", ...: stable words, used in logs and replies.
std::string_view code_name(Code code);
// The code whose word this is; kOk and false when there is none.
bool code_from_name(std::string_view name, Code* code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // fine

  // `operation` is what was tried ("vmm.map"), `object` on what ("page 7 of layer 3", a path),
  // `native` the driver's or the kernel's own number (0: none), `text` the rest of the sentence.
  // Of an object or text over 1 KiB the middle is left out: what is quoted may come from a peer.
  static Status error(Code code, std::string_view operation, std::string_view object = {},
                      std::int64_t native = 0, std::string_view text = {});
  // kSystem with the given errno value and its text.
  static Status system(std::string_view operation, std::string_view object, int errno_value);

  [[nodiscard]] bool ok() const { return detail_ == nullptr; }
  [[nodiscard]] Code code() const { return ok() ? Code::kOk : detail_->code; }
  [[nodiscard]] std::int64_t native() const { return ok() ? 0 : detail_->native; }
  [[nodiscard]] std::string_view operation() const;
  [[nodiscard]] std::string_view object() const;
  [[nodiscard]] std::string_view text() const;
  // One line for people: "vmm.map: page 7 of layer 3: out_of_memory (2): no page left".
  [[nodiscard]] std::string to_string() const;

 private:
  struct Detail {
    Code code;
    std::int64_t native;
    std::string operation, object, text;
  };
  std::shared_ptr<const Detail> detail_;
};

// A T, or the Status that says why there is none (never a Status that is fine).
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Status> {
 public:
  using Base = tl::expected<T, Status>;
  using Base::Base;
  // Implicit: a value is a result, and so is a failure.
  Result(T value) : Base(std::move(value)) {}
  Result(Status status) : Base(tl::unexpected<Status>(std::move(status))) {}

  [[nodiscard]] bool ok() const { return this->has_value(); }
  // The failure; fine when there is a value.
  [[nodiscard]] Status status() const { return ok() ? Status() : this->error(); }
};

}  // namespace kv

#define KV_CONCAT_INNER_(a, b) a##b
#define KV_CONCAT_(a, b) KV_CONCAT_INNER_(a, b)
// Leaves the function with the failure of `expression`, if it failed.
#define KV_RETURN_IF_ERROR(expression)                                               \
  do {                                                                               \
    if (::kv::Status kv_status_ = (expression); !kv_status_.ok()) return kv_status_; \
  } while (false)
// `lhs` = the value of `expression`, or leaves the function with its failure.
// NOLINTBEGIN(bugprone-macro-parentheses): `lhs` may be a declaration
#define KV_ASSIGN_OR_RETURN(lhs, expression) \
  KV_ASSIGN_OR_RETURN_(KV_CONCAT_(kv_result_, __LINE__), lhs, expression)
#define KV_ASSIGN_OR_RETURN_(result, lhs, expression) \
  auto result = (expression);                         \
  if (!result.ok()) return result.status();           \
  lhs = std::move(*result)
// NOLINTEND(bugprone-macro-parentheses)

#endif  // KVCORE_BASE_STATUS_H_
