#include "played_calls.h"

#include <algorithm>
#include <memory>
#include <thread>

namespace tenuto {

CallRequest request_of(OpenCall& call) {
  CallRequest request = call.drawn.request;
  request.total = call.total;
  request.own = call.drawn.in_place ? std::span<const std::byte>(call.total) : call.own;
  return request;
}

void judge(const OpenCall& call, int32_t place, const std::vector<WorkerId>& members,
           Findings& findings, bool keep_bits) {
  const std::string wrong = difference(call.drawn, call.total, place, members);
  if (!wrong.empty()) findings.fault(cat("call ", call.index, ": ", wrong));
  if (call.own != call.before) findings.fault(cat("call ", call.index, ": own was written"));
  if (!keep_bits) return;
  const auto count = static_cast<int32_t>(members.size());
  const ElementRange range = result_range(call.drawn, place, count);
  const size_t one = size_of(call.drawn.request.element);
  const bool scattered = call.drawn.request.kind == CallKind::ReduceScatter;
  findings.tell(cat("call ", call.index, scattered ? cat(" place ", place) : std::string()),
                std::span<const std::byte>(call.total)
                    .subspan(static_cast<size_t>(range.first) * one,
                             static_cast<size_t>(range.end - range.first) * one));
}

void play(Communicator& group, int32_t place, const std::vector<WorkerId>& members,
          const CallScript& script, Findings& findings) {
  Random drawn(script.seed);                                            // the same at all members
  Random mine(mix(script.seed, static_cast<uint64_t>(place), 0x6d65));  // this member's arrivals
  int index = 0;
  for (int round = 0; round < script.rounds; ++round) {
    std::vector<DrawnCall> calls(static_cast<size_t>(1 + drawn.below(4)));
    for (DrawnCall& call : calls) call = draw_call(drawn, members, script.most_elements);
    for (int time = 0; time < script.times; ++time) {
      std::vector<std::unique_ptr<OpenCall>> open;
      for (size_t i = 0; i < calls.size(); ++i) {
        if (mine.below(4) == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(mine.below(300)));
        }
        auto call = std::make_unique<OpenCall>();
        call->drawn = calls[i];
        call->index = index + static_cast<int>(i);
        call->own = call->before = tensor_of(call->drawn, place);
        call->total.assign(call->own.size(), std::byte{0x5a});
        if (call->drawn.in_place) call->total = call->own;
        const auto number = group.start(request_of(*call));
        if (!number.ok()) return findings.fault(number.error().message);
        call->number = number.value();
        open.push_back(std::move(call));
      }
      while (!open.empty()) {
        const auto pick = static_cast<size_t>(mine.below(static_cast<int64_t>(open.size())));
        const OpenCall& call = *open[pick];
        if (mine.below(3) == 0) {
          const auto over = group.test(call.number);
          if (!over.ok()) return findings.fault(over.error().message);
          if (!over.value()) continue;
        } else if (const Status status = group.wait(call.number); !status.ok()) {
          return findings.fault(status.error().message);
        }
        judge(call, place, members, findings, script.keep_bits);
        open.erase(open.begin() + static_cast<int64_t>(pick));
      }
    }
    index += static_cast<int>(calls.size());
  }
}

CommunicatorSettings drawn_settings(uint64_t seed) {
  Random random(mix(seed, 0x7365));
  CommunicatorSettings settings;
  settings.slice_bytes = random.below(3) == 0 ? 0 : 64 + random.below(2000);
  settings.sends_at_once = static_cast<int32_t>(random.below(5));
  settings.link = AlphaBeta{std::chrono::microseconds(20), 1e8};
  settings.told_bytes = 500;
  settings.calls_ahead = static_cast<int32_t>(1 + random.below(5));
  return settings;
}

CommunicatorSettings plain_settings() {
  CommunicatorSettings settings;
  settings.way = {"ring"};
  return settings;
}

Status reduce(Communicator& group, size_t floats, const std::function<void(CallRequest&)>& change) {
  std::vector<float> numbers(floats, 1.0F);
  CallRequest request;
  request.total = std::as_writable_bytes(std::span(numbers));
  request.own = request.total;
  request.way = {"ring"};
  change(request);
  return group.run(request);
}

}  // namespace tenuto
