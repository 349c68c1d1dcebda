// Steps in words, for people: what a report, a plan and a hang say of them.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>

#include "harness/scenario/names.h"
#include "harness/steps/steps.h"
#include "harness/scenario/units.h"

namespace kv::drill {
namespace {

// "vmm.map[4]#2 in worker, thread stop"
std::string moment(const Address& address) {
  Address bare = address;
  bare.process.clear();
  bare.thread.clear();
  std::string text = to_string(bare);
  if (!address.process.empty()) text += " in " + address.process;
  if (!address.thread.empty()) text += ", thread " + address.thread;
  return text;
}

std::string unless(const std::string& name, const std::string& same) {
  return name == same ? std::string() : " as " + name;
}

struct Describe {
  std::string operator()(const StartStep& step) const { return "start " + step.process; }
  std::string operator()(const SignalStep& step) const {
    return fmt::format("signal {} to {}", short_signal_name(step.signal), step.process);
  }
  std::string operator()(const ExitStep& step) const {
    std::string text = "exit " + step.process;
    if (step.how != "return") text += " by " + step.how;
    if (step.code != 0) text += fmt::format(" with code {}", step.code);
    if (!step.wait) text += ", without waiting";
    return text;
  }
  std::string operator()(const EndedStep& step) const {
    std::string text = step.process + " ended";
    if (step.code) text += fmt::format(" with code {}", *step.code);
    if (step.signal) text += " by signal " + short_signal_name(*step.signal);
    return text;
  }
  std::string operator()(const ConnectStep& step) const {
    const std::string& to = step.process.empty() ? step.path : step.process;
    return fmt::format("{} connects to {}{}", step.client, to,
                       step.refused ? " and is refused" : "");
  }
  std::string operator()(const SendStep& step) const {
    return fmt::format("{} sends {} bytes", step.client, step.bytes.size());
  }
  std::string operator()(const SendRestStep& step) const {
    return step.client + (step.first ? fmt::format(" sends {} bytes of the rest", *step.first)
                                     : " sends the rest");
  }
  std::string operator()(const CloseStep& step) const {
    return step.client + (step.half ? " closes its sending half" : " closes");
  }
  std::string operator()(const ExpectEndStep& step) const {
    return step.client + " sees the end of the connection";
  }
  std::string operator()(const ExpectReplyStep& step) const {
    return fmt::format("{} gets {}", step.client, to_json(step.fields));
  }
  std::string operator()(const ExpectNothingStep& step) const {
    return step.client + " sees nothing";
  }
  std::string operator()(const WaitStep& step) const {
    return fmt::format("wait {}{}", moment(step.at), step.again ? ", once more" : "");
  }
  std::string operator()(const GiveStep& step) const {
    const std::string at = moment(step.at);
    // Without `as` the address is the name.
    const bool named = step.as.rfind(step.at.site, 0) != 0;
    const std::string as = named ? " as " + step.as : std::string();
    switch (step.what) {
      case GiveStep::What::kHold:
        return fmt::format("hold {}{}", at, as);
      case GiveStep::What::kFail:
        return fmt::format("fail {} with {}{}", at, step.code, how_often(step.times));
      case GiveStep::What::kSkip:
        return fmt::format("skip {}", at);
      case GiveStep::What::kCrash:
        return fmt::format("crash at {} by {}", at, short_signal_name(static_cast<int>(step.code)));
      case GiveStep::What::kFreeze:
        return fmt::format("freeze at {}{}", at, as);
      case GiveStep::What::kRun:
        return fmt::format("run {} at {}{}", step.command, at, unless(step.as, step.command));
    }
    return at;
  }
  std::string operator()(const ReleaseStep& step) const { return "release " + step.as; }
  std::string operator()(const CallStep& step) const {
    return fmt::format("call {} in {}{}", step.command, step.process,
                       unless(step.as, step.command));
  }
  std::string operator()(const ReturnsStep& step) const {
    std::string text = "returns " + step.as;
    if (step.value) text += " = " + *step.value;
    if (!step.text.empty()) text += fmt::format(", saying \"{}\"", step.text);
    return text;
  }
  std::string operator()(const PendingStep& step) const { return "pending " + step.as; }
  std::string operator()(const AdvanceStep& step) const {
    return "advance " + show_duration(step.ns);
  }
  std::string operator()(const OrderStep& step) const {
    const auto& all = step.addresses;
    const bool one_process = std::all_of(all.begin(), all.end(), [&](const Address& address) {
      return address.process == all.front().process;
    });
    std::string text = "order ";
    for (Address address : all) {
      if (one_process) address.process.clear();
      if (text.size() > 6) text += " < ";
      text += to_string(address);
    }
    if (one_process && !all.empty() && !all.front().process.empty()) {
      text += " in " + all.front().process;
    }
    return text;
  }
  std::string operator()(const CountStep& step) const {
    std::string text = "count " + moment(step.of);
    if (step.is) text += fmt::format(" is {}", *step.is);
    if (step.at_least) text += fmt::format(" at least {}", *step.at_least);
    if (step.at_most) text += fmt::format(" at most {}", *step.at_most);
    return text;
  }
  std::string operator()(const LoggedStep& step) const {
    return fmt::format("logged \"{}\" in {}", step.text, step.process);
  }
  std::string operator()(const FileStep& step) const {
    switch (step.state) {
      case FileStep::State::kPresent:
        return fmt::format("file {} is present", step.path);
      case FileStep::State::kAbsent:
        return fmt::format("file {} is absent", step.path);
      case FileStep::State::kSocket:
        return fmt::format("file {} is a socket", step.path);
      case FileStep::State::kSame:
        return fmt::format("file {} is the same as {}", step.path, step.as);
    }
    return "file " + step.path;
  }
  std::string operator()(const PlaceStep& step) const {
    return fmt::format("place {}{}", step.socket ? "a socket at " : "", step.path);
  }
  std::string operator()(const CardStep& step) const {
    std::string text = fmt::format("card of {}", step.process);
    if (step.bytes) text += fmt::format(", bytes {}", show_bytes(*step.bytes));
    if (step.handles) text += fmt::format(", handles {}", *step.handles);
    if (step.mappings) text += fmt::format(", mappings {}", *step.mappings);
    if (step.reservations) text += fmt::format(", reservations {}", *step.reservations);
    return text;
  }
  std::string operator()(const RepeatStep& step) const {
    return fmt::format("repeat {} times", step.times);
  }

 private:
  static std::string how_often(std::uint64_t times) {
    if (times == 1) return {};
    return times == 0 ? ", always" : fmt::format(", {} times", times);
  }
};

}  // namespace

std::string describe(const Deed& deed) {
  return std::visit(Describe{}, deed);
}

}  // namespace kv::drill
