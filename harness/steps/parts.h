// What the steps are made of: one include for the files of this folder, and words that several use.
//
// Here lives one file for each step of the language: its data, how it is read, its line for people,
// what is refused of it, and how it is carried out; client_*.cc are the verbs of `client`. table.cc
// lists them all, so a new step is a new file and one line there. Nothing else may know a step.
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

}  // namespace kv::drill

#endif  // HARNESS_STEPS_PARTS_H_
