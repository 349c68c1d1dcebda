#include "harness/steps/parts.h"

namespace kv::drill {

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

}  // namespace kv::drill
