// A step of a drill, and what every kind of step can do. The kinds themselves are the files of
// harness/steps, one each; nothing here and nothing that runs drills knows them.
//
// Threads, ownership: values; copies of a Deed share what never changes.
#ifndef HARNESS_SCENARIO_STEP_H_
#define HARNESS_SCENARIO_STEP_H_

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kv::drill {

class Executor;  // harness/drill/executor.h: what a step can use when it is carried out
class Flow;      // flow.h: what is known of the drill where a step stands

struct Position {
  std::string file;
  int line = 0;    // from 1
  int column = 0;  // from 1
};

// What became of one step.
struct Outcome {
  enum class How {
    kDone,
    kWrong,      // it asserts something that is not so, or cannot be carried out
    kHung,       // it waited for something that did not come
    kHopeless,   // a process ended, and with it the chance
    kVoid,       // nobody could tell
    kOutrun,     // a limit of the engine's own ran out first: void, and so is all that follows
    kSkipped,    // it cannot be judged with this driver
    kBroken,     // the harness could not do its part
    kNotJudged,  // an earlier failure took away what it needs
    kInterrupted,
  };
  How how = How::kDone;
  std::string why;
};
inline Outcome wrong(std::string why) {
  return {Outcome::How::kWrong, std::move(why)};
}

// Warnings and errors of this process that hold this text are expected, however often.
struct AllowedLog {
  std::string process;  // empty: of any
  std::string text;
};

// What the steps say of the whole run, before any of them is carried out.
struct Ahead {
  struct End {
    std::string process;
    std::optional<int> code, signal;
  };
  std::vector<End> ends;  // how processes end, where a step says it, in the order of the steps
  std::vector<AllowedLog> logs;
  std::set<std::string> shut_down;  // processes in which shutdown is called; empty: in any
  std::set<std::string> moments;    // names that steps speak of, with ".done" where they do
  std::set<std::int64_t> codes;     // what calls are made to fail with
};

// What a kind of step is: its data, and
//   std::string text() const               the step in one short line, for people
//   void check(Flow&) const                refuses what can never be met where it stands
//   Outcome carry_out(Executor&) const
// and, if it likes,
//   bool only_looks() const                what it finds untrue takes nothing away from the rest
//   bool carries_all() const               if it fails nothing can go on, even if it has a name
//   void foretell(Ahead&) const
template <typename T>
concept StepData = requires(const T& step, Flow& flow, Executor& executor) {
  { step.text() } -> std::same_as<std::string>;
  step.check(flow);
  { step.carry_out(executor) } -> std::same_as<Outcome>;
};

// A step of whatever kind.
class Deed {
 public:
  Deed() = default;  // none: only to be assigned to
  template <typename T>
  requires(!std::same_as<T, Deed> && StepData<T>) Deed(T step)
      : self_(std::make_shared<const Of<T>>(std::move(step))) {}

  std::string text() const { return self_->text(); }
  void check(Flow& flow) const { self_->check(flow); }
  Outcome carry_out(Executor& executor) const { return self_->carry_out(executor); }
  bool only_looks() const { return self_->only_looks(); }
  bool carries_all() const { return self_->carries_all(); }
  void foretell(Ahead& ahead) const { self_->foretell(ahead); }

  // The data, for tests; null: it is of another kind.
  template <StepData T>
  const T* as() const {
    const auto* of = dynamic_cast<const Of<T>*>(self_.get());
    return of == nullptr ? nullptr : &of->step;
  }

 private:
  struct Any {
    virtual ~Any() = default;
    virtual std::string text() const = 0;
    virtual void check(Flow& flow) const = 0;
    virtual Outcome carry_out(Executor& executor) const = 0;
    virtual bool only_looks() const = 0;
    virtual bool carries_all() const = 0;
    virtual void foretell(Ahead& ahead) const = 0;
  };
  template <typename T>
  struct Of final : Any {
    explicit Of(T its) : step(std::move(its)) {}
    std::string text() const override { return step.text(); }
    void check(Flow& flow) const override { step.check(flow); }
    Outcome carry_out(Executor& executor) const override { return step.carry_out(executor); }
    bool only_looks() const override {
      if constexpr (requires { step.only_looks(); }) return step.only_looks();
      return false;
    }
    bool carries_all() const override {
      if constexpr (requires { step.carries_all(); }) return step.carries_all();
      return false;
    }
    void foretell([[maybe_unused]] Ahead& ahead) const override {
      if constexpr (requires { step.foretell(ahead); }) step.foretell(ahead);
    }
    const T step;
  };
  std::shared_ptr<const Any> self_;
};

struct Step {
  std::string id;    // the check's name; empty: the step's text serves
  std::string text;  // the step in one short line, for people: 'wait listener.read.body in worker'
  Position position;
  std::optional<std::int64_t> deadline_ns = {};  // else the drill's
  Deed deed = {};
  // Of a step that holds others: they are done in its place, so often.
  std::vector<Step> body = {};
  std::uint64_t rounds = 1;
  const std::string& check_name() const { return id.empty() ? text : id; }
};

Ahead foretold(const std::vector<Step>& steps);

}  // namespace kv::drill

#endif  // HARNESS_SCENARIO_STEP_H_
