#include "jaxlib/ipu/runtime/pjrt/transport.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "jaxlib/ipu/runtime/support/gate.h"

namespace ipu {
namespace {

Gate<const ipu_transport*>& Transports() {
  static auto* gate = new Gate<const ipu_transport*>;
  return *gate;
}

std::atomic<int64_t> timeout_milliseconds{0};

// Calls `use` with the transport.
template <typename Use>
Status WithTransport(Use use) {
  const ipu_transport* const transport = Transports().Enter();
  if (transport == nullptr) {
    return Status(Code::kCancelled,
                  "there is no connection to other processes: Python is "
                  "shutting down");
  }
  use(*transport);
  Transports().Leave();
  return Status();
}

// Null: nothing arrived.
using Sink = StatusOr<std::unique_ptr<ProcessRun::Message>>;

class TransportRun : public ProcessRun {
 public:
  TransportRun(std::string channel, uint64_t number, Processes processes)
      : channel_(std::move(channel)),
        number_(number),
        processes_(std::move(processes)) {
    others_ = processes_.of_partitions;
    std::sort(others_.begin(), others_.end());
    others_.erase(std::unique(others_.begin(), others_.end()), others_.end());
    std::erase(others_, processes_.own);
  }
  ~TransportRun() override {
    // Without a transport there is nobody to tell.
    (void)WithTransport([this](const ipu_transport& transport) {
      transport.end(channel_.c_str(), number_);
    });
  }

  int ProcessOf(uint32_t partition) const override {
    return processes_.of_partitions[partition];
  }
  int process() const override { return processes_.own; }
  std::chrono::milliseconds timeout() const override {
    return std::chrono::milliseconds(timeout_milliseconds);
  }

  Status Send(std::span<const int> processes, std::string_view tag,
              std::string_view what, std::span<const char> data) override {
    const std::string tag_text(tag), what_text(what);
    return WithTransport([&](const ipu_transport& transport) {
      transport.send(processes.data(), processes.size(), channel_.c_str(),
                     number_, tag_text.c_str(), what_text.c_str(), data.data(),
                     data.size());
    });
  }

  StatusOr<std::unique_ptr<Message>> Receive(
      int process, std::string_view tag,
      std::chrono::milliseconds patience) override {
    Sink sink{std::unique_ptr<Message>()};
    const std::string text(tag);
    IPU_RETURN_IF_ERROR(WithTransport([&](const ipu_transport& transport) {
      transport.receive(process, channel_.c_str(), number_, text.c_str(),
                        patience.count(), &sink);
    }));
    return sink;
  }

  void Fail(const Status& status) override {
    if (failed_.exchange(true)) return;
    const std::string text = "process " + std::to_string(processes_.own) +
                             " has failed: " + status.message();
    (void)WithTransport([&](const ipu_transport& transport) {
      transport.fail(others_.data(), others_.size(), channel_.c_str(), number_,
                     static_cast<int>(status.code()), text.c_str());
    });
  }

 private:
  const std::string channel_;
  const uint64_t number_;
  const Processes processes_;
  std::vector<int> others_;
  std::atomic<bool> failed_{false};
};

}  // namespace

ProcessRunPtr Channels::Begin(const std::vector<int64_t>& devices,
                              Processes processes) {
  std::string channel;
  for (const int64_t id : devices) {
    if (!channel.empty()) channel += ',';
    channel += std::to_string(id);
  }
  uint64_t number;
  {
    std::lock_guard lock(mutex_);
    number = runs_[channel]++;
  }
  return std::make_shared<TransportRun>(std::move(channel), number,
                                        std::move(processes));
}

}  // namespace ipu

void ipu_set_transport(const ipu_transport* transport,
                       int64_t timeout_milliseconds) {
  ipu::timeout_milliseconds = timeout_milliseconds;
  ipu::Transports().Set(transport);
}

void* ipu_message_arrived(void* sink, const char* what, size_t size) {
  void* data = nullptr;
  auto* const answer = static_cast<ipu::Sink*>(sink);
  const ipu::Status status = ipu::Caught([&] {
    auto message = std::make_unique<ipu::ProcessRun::Message>(
        ipu::ProcessRun::Message{what, ipu::AlignedBytes::Allocate(size)});
    if (size > 0 && message->data.data() == nullptr) return ipu::NoHostMemory();
    data = message->data.data();
    *answer = std::move(message);
    return ipu::Status();
  });
  if (!status.ok()) *answer = status;
  return data;
}

void ipu_message_failed(void* sink, int code, const char* message) {
  auto* const answer = static_cast<ipu::Sink*>(sink);
  *answer = ipu::Caught(
      [&] { return ipu::Status(static_cast<ipu::Code>(code), message); });
}
