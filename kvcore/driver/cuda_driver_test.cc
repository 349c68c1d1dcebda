#include "kvcore/driver/cuda_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "fakes/doubles/mock_driver.h"

namespace kv {
namespace {

using ::testing::HasSubstr;
using ::testing::NiceMock;

TEST(CudaDriver, AMissingLibraryIsNamed) {
  const auto driver = load_cuda_driver("/nowhere/libcuda.so.1");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), Code::kNotFound);
  EXPECT_EQ(driver.status().object(), "/nowhere/libcuda.so.1");
  EXPECT_THAT(driver.status().to_string(), HasSubstr("No such file"));
}

TEST(CudaDriver, ALibraryThatIsNoDriverIsNamedWithTheSymbolThatItLacks) {
  // Twice: a failure is not remembered as a table.
  for (int i = 0; i < 2; ++i) {
    const auto driver = load_cuda_driver("libm.so.6");
    ASSERT_FALSE(driver.ok());
    EXPECT_EQ(driver.status().code(), Code::kNotFound);
    EXPECT_EQ(driver.status().object(), "libm.so.6");
    EXPECT_THAT(std::string(driver.status().text()), HasSubstr("no symbol cuInit"));
  }
}

TEST(CudaDriver, AnEmptyPathIsNotThisProgramItself) {
  EXPECT_EQ(load_cuda_driver("").status().code(), Code::kInvalidArgument);
}

TEST(CudaDriver, AResultIsNamedByTheDriver) {
  NiceMock<MockDriver> mock;
  const CudaDriver driver = MockDriver::table();
  EXPECT_EQ(cuda_result_name(driver, 2), "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(cuda_result_name(driver, 54321), "unknown CUresult");
}

}  // namespace
}  // namespace kv
