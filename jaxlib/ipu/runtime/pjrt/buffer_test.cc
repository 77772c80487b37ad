// Buffers, and transfers to and from them.

#include <gtest/gtest.h>

#include <cstring>

#include "jaxlib/ipu/runtime/pjrt/testing.h"
#include "jaxlib/ipu/runtime/support/host_allocator.h"

namespace ipu::testing {
namespace {

using BufferTest = PjrtTest;
using Vector = std::vector<float>;

TEST_F(BufferTest, HostArraysAreCopied) {
  Vector host = {1, 2, 3};
  auto x = Put(host);
  host[0] = 7;
  EXPECT_EQ(Values(x.get()), (Vector{1, 2, 3}));
  EXPECT_EQ(x->info->shape, std::vector<int64_t>{3});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x->Data()) % 64, 0);
}

TEST_F(BufferTest, HostArraysMayHaveAnyStrides) {
  const Vector host = {1, 2, 3, 4, 5, 6};  // 2 x 3, column-major
  const int64_t dims[] = {2, 3}, strides[] = {4, 8};
  PJRT_Client_BufferFromHostBuffer_Args args = {};
  args.client = client_.get();
  args.data = host.data();
  args.type = PJRT_Buffer_Type_F32;
  args.dims = dims;
  args.num_dims = 2;
  args.byte_strides = strides;
  args.num_byte_strides = 2;
  args.memory = &device()->memory;
  Check(api_->PJRT_Client_BufferFromHostBuffer(&args));
  std::unique_ptr<PJRT_Buffer> x(args.buffer);
  EXPECT_EQ(Values(x.get()), (Vector{1, 3, 5, 2, 4, 6}));

  // Read back in column-major order.
  const int64_t minor_to_major[] = {0, 1};
  PJRT_Buffer_MemoryLayout layout = {};
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.minor_to_major = minor_to_major;
  layout.tiled.minor_to_major_size = 2;
  Vector back(6);
  PJRT_Buffer_ToHostBuffer_Args read = {};
  read.src = x.get();
  read.host_layout = &layout;
  read.dst = back.data();
  read.dst_size = 24;
  Check(api_->PJRT_Buffer_ToHostBuffer(&read));
  EXPECT_EQ(back, host);
}

TEST_F(BufferTest, ToHostBufferReportsTheSizeItNeeds) {
  auto x = Put({1, 2, 3});
  PJRT_Buffer_ToHostBuffer_Args args = {};
  args.src = x.get();
  Check(api_->PJRT_Buffer_ToHostBuffer(&args));
  EXPECT_EQ(args.dst_size, 12);
  char byte;
  args.dst = &byte;
  args.dst_size = 1;
  EXPECT_NE(Message(api_->PJRT_Buffer_ToHostBuffer(&args)).find("too few"),
            std::string::npos);
}

TEST_F(BufferTest, RawCopiesAreBoundsChecked) {
  auto x = Put({1, 2, 3});
  float value = 0;
  PJRT_Buffer_CopyRawToHost_Args args = {};
  args.buffer = x.get();
  args.dst = &value;
  args.offset = 4;
  args.transfer_size = 4;
  Check(api_->PJRT_Buffer_CopyRawToHost(&args));
  EXPECT_EQ(value, 2);
  args.offset = 12;
  EXPECT_NE(Message(api_->PJRT_Buffer_CopyRawToHost(&args)).find("outside"),
            std::string::npos);
}

TEST_F(BufferTest, DeletionFreesMemoryAndReadingIsAnError) {
  auto x = Put({1, 2, 3});
  EXPECT_EQ(device()->sram.figures().in_use, 12);
  x->Delete();
  EXPECT_EQ(device()->sram.figures().in_use, 0);
  EXPECT_EQ(device()->sram.figures().peak, 12);
  EXPECT_TRUE(x->IsDeleted());
  EXPECT_EQ(Get(x.get()).second, DeletedError().message());
  EXPECT_EQ(x->Data(), nullptr);
}

TEST_F(BufferTest, DeletedContentsStayWhileReferenced) {
  const size_t before = HostAllocator::Global().live_bytes();
  auto x = Put({1, 2, 3});
  x->IncreaseExternalReferences();
  x->IncreaseExternalReferences();
  auto* view = static_cast<const float*>(x->Data());
  x->Delete();
  EXPECT_TRUE(x->IsDeleted());
  EXPECT_TRUE(x->DecreaseExternalReferences());
  EXPECT_EQ(view[2], 3);
  EXPECT_EQ(HostAllocator::Global().live_bytes(), before + 64);
  EXPECT_TRUE(x->DecreaseExternalReferences());
  EXPECT_EQ(HostAllocator::Global().live_bytes(), before);
  EXPECT_FALSE(x->DecreaseExternalReferences());
}

TEST_F(BufferTest, LayoutIsRowMajor) {
  auto x = Put({1, 2, 3});
  PJRT_Buffer_GetMemoryLayout_Args args = {};
  args.buffer = x.get();
  Check(api_->PJRT_Buffer_GetMemoryLayout(&args));
  ASSERT_EQ(args.layout.tiled.minor_to_major_size, 1);
  EXPECT_EQ(args.layout.tiled.minor_to_major[0], 0);
}

TEST_F(BufferTest, ErrorBuffersRaiseTheirError) {
  const int64_t count = 2;
  PJRT_Client_CreateErrorBuffer_Args args = {};
  args.client = client_.get();
  args.error_code = PJRT_Error_Code_DATA_LOSS;
  args.error_message = "gone";
  args.error_message_size = 4;
  args.shape_dims = &count;
  args.shape_num_dims = 1;
  args.shape_element_type = PJRT_Buffer_Type_F32;
  args.memory = &device()->memory;
  Check(api_->PJRT_Client_CreateErrorBuffer(&args));
  std::unique_ptr<PJRT_Buffer> x(args.buffer);
  EXPECT_EQ(Get(x.get()).second, "gone");
}

TEST_F(BufferTest, ImpossibleShapesAreRefused) {
  const int64_t dims[] = {int64_t{1} << 40, int64_t{1} << 40};
  PJRT_Client_CreateUninitializedBuffer_Args args = {};
  args.client = client_.get();
  args.shape_dims = dims;
  args.shape_num_dims = 2;
  args.shape_element_type = PJRT_Buffer_Type_F32;
  EXPECT_NE(Message(api_->PJRT_Client_CreateUninitializedBuffer(&args))
                .find("too large"),
            std::string::npos);
  args.shape_element_type = PJRT_Buffer_Type_TOKEN;
  EXPECT_NE(Message(api_->PJRT_Client_CreateUninitializedBuffer(&args))
                .find("element type"),
            std::string::npos);
}

TEST_F(BufferTest, MemoryStatisticsAreComplete) {
  auto x = Put({1, 2, 3});
  PJRT_Device_MemoryStats_Args args;
  std::memset(&args, 0xff, sizeof(args));  // jaxlib leaves it uninitialised
  args.device = device();
  Check(api_->PJRT_Device_MemoryStats(&args));
  EXPECT_EQ(args.bytes_in_use, 12);
  EXPECT_TRUE(args.bytes_limit_is_set);
  EXPECT_EQ(args.bytes_limit, 4 * 1024);
  EXPECT_EQ(args.num_allocs, 1);
  EXPECT_FALSE(args.pool_bytes_is_set);
  EXPECT_FALSE(args.peak_pool_bytes_is_set);
  EXPECT_FALSE(args.bytes_reserved_is_set);
  EXPECT_FALSE(args.peak_bytes_reserved_is_set);
  EXPECT_TRUE(args.bytes_reservable_limit_is_set);
  EXPECT_EQ(args.bytes_reservable_limit, 4 * 1024);
  EXPECT_TRUE(args.largest_free_block_bytes_is_set);
  EXPECT_EQ(args.largest_free_block_bytes, 4 * (1024 - 12));
}

}  // namespace
}  // namespace ipu::testing
