// Under which sanitizer this is built. ThreadSanitizer's runtime has threads of its own and
// delivers signals late. Threads, ownership: constants.
#ifndef HARNESS_BOARD_SANITIZER_H_
#define HARNESS_BOARD_SANITIZER_H_

#include <string_view>

namespace kv::drill {

// "asan", "tsan", as in a scenario's not_under; empty without.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr std::string_view kSanitizer = "asan";
#elif defined(__SANITIZE_THREAD__)
inline constexpr std::string_view kSanitizer = "tsan";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr std::string_view kSanitizer = "asan";
#elif __has_feature(thread_sanitizer)
inline constexpr std::string_view kSanitizer = "tsan";
#else
inline constexpr std::string_view kSanitizer;
#endif
#else
inline constexpr std::string_view kSanitizer;
#endif

inline constexpr bool kRaceDetector = kSanitizer == "tsan";

}  // namespace kv::drill

#endif  // HARNESS_BOARD_SANITIZER_H_
