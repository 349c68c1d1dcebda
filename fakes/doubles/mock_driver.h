// A GoogleMock double of the driver's functions, and the table that leads to it: for tests of which
// driver calls CudaVmm makes, with what, and from which context.
//
// The functions of a table carry no object, so the last MockDriver made gets the calls. By default
// each call succeeds, device numbers equal ordinals, and each thread has the current context that
// was last set on it.
//
// Threads: as GoogleMock's. Ownership: the table points into the program, not into the object.
#ifndef FAKES_DOUBLES_MOCK_DRIVER_H_
#define FAKES_DOUBLES_MOCK_DRIVER_H_

#include <gmock/gmock.h>

#include "kvcore/driver/cuda_driver.h"

namespace kv {

class MockDriver {
 public:
  MockDriver() : covered_(current_) {
    using ::testing::_;
    current_ = this;
    thread_context() = nullptr;
    ON_CALL(*this, device_get(_, _)).WillByDefault([](cuda::Device* device, int ordinal) {
      *device = ordinal;
      return cuda::kSuccess;
    });
    ON_CALL(*this, primary_ctx_retain(_, _))
        .WillByDefault([](cuda::Context* context, cuda::Device device) {
          *context = primary(device);
          return cuda::kSuccess;
        });
    ON_CALL(*this, ctx_get_current(_)).WillByDefault([](cuda::Context* context) {
      *context = thread_context();
      return cuda::kSuccess;
    });
    ON_CALL(*this, ctx_set_current(_)).WillByDefault([](cuda::Context context) {
      thread_context() = context;
      return cuda::kSuccess;
    });
    ON_CALL(*this, get_error_name(_, _)).WillByDefault(&error_name);
  }
  ~MockDriver() { current_ = covered_; }
  MockDriver(const MockDriver&) = delete;
  MockDriver& operator=(const MockDriver&) = delete;

#define KV_MOCK_CALL_(member, name, symbol, parameters) \
  MOCK_METHOD(cuda::Result, member, parameters);
  KV_CUDA_CALLS(KV_MOCK_CALL_)
#undef KV_MOCK_CALL_

  // A table whose functions call the MockDriver of the moment.
  static CudaDriver table() {
    CudaDriver driver;
#define KV_LEAD_CALL_(member, name, symbol, parameters) \
  driver.member = &Lead<&MockDriver::member>::call;
    KV_CUDA_CALLS(KV_LEAD_CALL_)
#undef KV_LEAD_CALL_
    return driver;
  }

  // The primary context that retaining `device` gives by default.
  static cuda::Context primary(cuda::Device device) {
    static char contexts[8];
    return reinterpret_cast<cuda::Context>(&contexts[device]);
  }
  // What the calling thread has current.
  static cuda::Context& thread_context() {
    thread_local cuda::Context context = nullptr;
    return context;
  }

 private:
  template <auto kMember>
  struct Lead;
  template <typename... Arguments, cuda::Result (MockDriver::*kMember)(Arguments...)>
  struct Lead<kMember> {
    static cuda::Result call(Arguments... arguments) { return (current_->*kMember)(arguments...); }
  };

  static cuda::Result error_name(cuda::Result error, const char** name) {
    switch (error) {
      case 1:
        *name = "CUDA_ERROR_INVALID_VALUE";
        return cuda::kSuccess;
      case 2:
        *name = "CUDA_ERROR_OUT_OF_MEMORY";
        return cuda::kSuccess;
      case 101:
        *name = "CUDA_ERROR_INVALID_DEVICE";
        return cuda::kSuccess;
      default:
        *name = nullptr;
        return cuda::kInvalidValue;
    }
  }

  inline static MockDriver* current_ = nullptr;
  MockDriver* const covered_;
};

}  // namespace kv

#endif  // FAKES_DOUBLES_MOCK_DRIVER_H_
