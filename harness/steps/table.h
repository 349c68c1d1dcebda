// All words of the language: the steps, and the checks that every drill has.
//
// Threads, ownership: a constant.
#ifndef HARNESS_STEPS_TABLE_H_
#define HARNESS_STEPS_TABLE_H_

#include "harness/scenario/language.h"

namespace kv::drill {

const Language& language();

}  // namespace kv::drill

#endif  // HARNESS_STEPS_TABLE_H_
