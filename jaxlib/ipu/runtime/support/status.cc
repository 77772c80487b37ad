#include "jaxlib/ipu/runtime/support/status.h"

#include <exception>
#include <new>
#include <system_error>

namespace ipu {
namespace {

const Status no_memory = ResourceExhausted(
    "out of host memory: delete arrays, or run fewer programs at a time");

Status Describe() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return no_memory;
  } catch (const std::system_error& e) {
    return ResourceExhausted(
        std::string("the host cannot start another thread: ") + e.what());
  } catch (const std::exception& e) {
    return Internal(std::string("unexpected: ") + e.what());
  } catch (...) {
    return Internal("an unknown exception");
  }
}

}  // namespace

const Status& NoHostMemory() { return no_memory; }

Status StatusOfException() noexcept {
  try {
    return Describe();
  } catch (...) {
    return no_memory;
  }
}

}  // namespace ipu
