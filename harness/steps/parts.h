// What the steps are made of: one include for the files of this folder, and words that several use.
//
// Threads, ownership: functions and values; steps are carried out by the supervisor's one thread.
#ifndef HARNESS_STEPS_PARTS_H_
#define HARNESS_STEPS_PARTS_H_

#include <fmt/format.h>

#include <string>

#include "harness/drill/executor.h"
#include "harness/scenario/flow.h"
#include "harness/scenario/names.h"
#include "harness/scenario/step_reader.h"

namespace kv::drill {

// "vmm.map[4]#2 in worker, thread stop"
std::string moment(const Address& address);

// " as NAME", unless it is called like the thing itself.
std::string unless(const std::string& name, const std::string& same);

// What was kept of a standard output (output.h). Error: it cannot be read.
tl::expected<std::string, std::string> read_output(const std::string& path);

// "it ends 'last words'", "it is empty": of a process's standard error, for people.
std::string words_of(const Instance& instance);

}  // namespace kv::drill

#endif  // HARNESS_STEPS_PARTS_H_
