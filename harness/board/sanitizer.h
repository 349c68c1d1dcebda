// Whether this is a build under ThreadSanitizer, whose runtime has threads of its own and delivers
// signals late. Threads, ownership: a constant.
#ifndef HARNESS_BOARD_SANITIZER_H_
#define HARNESS_BOARD_SANITIZER_H_

namespace kv::drill {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kRaceDetector = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kRaceDetector = true;
#else
inline constexpr bool kRaceDetector = false;
#endif
#else
inline constexpr bool kRaceDetector = false;
#endif

}  // namespace kv::drill

#endif  // HARNESS_BOARD_SANITIZER_H_
