// C functions with which Python fills and empties feeds (jaxlib/ipu/feeds.py).

#ifndef JAXLIB_IPU_RUNTIME_PJRT_FEED_FUNCTIONS_H_
#define JAXLIB_IPU_RUNTIME_PJRT_FEED_FUNCTIONS_H_

#include <cstddef>
#include <cstdint>

extern "C" {

// See engine/feeds.h.
void ipu_set_feed_limits(size_t capacity, double patience);
uint32_t ipu_make_feed(const char* name);
void ipu_remove_feed(uint32_t number);
void ipu_close_feeds();
uint32_t ipu_device_feed(int device, int out);

// There are no more items; `error` is the reason, or null.
void ipu_end_feed(uint32_t number, const char* error);

// The arrays of an item; `dims` holds the shapes of all of them.
struct ipu_feed_type {
  size_t count;
  const uint8_t* dtypes;
  const size_t* ranks;
  const int64_t* dims;
  const size_t* bytes;
};

// Both wait for at most `seconds`, or as a program does if that is negative.
// They return 1, 0 if there was still no room or item, or -1 for an error,
// which the last two functions show on the same thread. `valid` may be null.
int ipu_push_feed(uint32_t number, const ipu_feed_type* type,
                  const void* const* arrays, double seconds);
int ipu_pop_feed(uint32_t number, const ipu_feed_type* type,
                 void* const* arrays, double seconds, uint8_t* valid);
const char* ipu_feed_error();
int ipu_feed_error_code();

}  // extern "C"

#endif  // JAXLIB_IPU_RUNTIME_PJRT_FEED_FUNCTIONS_H_
