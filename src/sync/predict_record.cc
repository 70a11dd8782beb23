#include "sync/predict_record.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/random.h"
#include "base/text.h"
#include "world/line_reading.h"

namespace tenuto {

namespace {

Duration scaled(Duration time, double factor) {
  return Duration(std::llround(static_cast<double>(time.count()) * factor));
}

// The whole number of nanoseconds that the word says, or nothing.
std::optional<Duration> duration_of(std::string_view word) {
  const std::optional<double> number = finite_number(word);
  constexpr auto kMost = static_cast<double>(kMostRecordedNanoseconds);
  if (!number || *number < 0 || *number > kMost || *number != std::floor(*number)) {
    return {};
  }
  return Duration(static_cast<int64_t>(*number));
}

Result<IterationSample> sample_of(const std::vector<LinePiece>& words, std::string_view source) {
  IterationSample sample;
  const auto times = {&sample.compute, &sample.send, &sample.receive, &sample.run_delay,
                      &sample.cpu};
  size_t at = 1;
  for (Duration* time : times) {
    const std::optional<Duration> read = duration_of(words[at].text);
    if (!read) {
      return error_at(source, words[at],
                      cat("expected a whole number of nanoseconds from 0 to ",
                          kMostRecordedNanoseconds, found_text(words[at].text)));
    }
    *time = *read;
    ++at;
  }
  const std::optional<double> pressure = finite_number(words[at].text);
  if (!pressure || *pressure < 0 || *pressure > 1) {
    return error_at(source, words[at],
                    cat("expected a pressure from 0 to 1", found_text(words[at].text)));
  }
  const std::optional<double> share = finite_number(words[at + 1].text);
  if (!share || *share < kLeastRecordedShare || *share > kMostRecordedShare) {
    return error_at(source, words[at + 1],
                    cat("expected a share from ", kLeastRecordedShare, " to ", kMostRecordedShare,
                        found_text(words[at + 1].text)));
  }
  sample.pressure = *pressure;
  sample.share = *share;
  return sample;
}

// The recording without samples that the first line tells of.
Result<Recording> header_of(const LinePiece& line, std::string_view source) {
  const std::vector<LinePiece> words = words_of(line, 5);
  if (words.size() != 4 || words[0].text != "samples" || words[2].text != "replicas") {
    return error_at(source, line, cat("expected 'samples NAME replicas W'", found_text(line.text)));
  }
  const std::optional<double> count = finite_number(words[3].text);
  if (!count || *count < 1 || *count > kMostRecordedReplicas || *count != std::floor(*count)) {
    return error_at(
        source, words[3],
        cat("expected 1 to ", kMostRecordedReplicas, " replicas", found_text(words[3].text)));
  }
  Recording recording;
  recording.name = std::string(words[1].text);
  recording.replicas.resize(static_cast<size_t>(*count));
  return recording;
}

}  // namespace

IterationTime time_of(const IterationSample& sample) {
  return {scaled(sample.compute, 1 / sample.share), sample.send + sample.receive};
}

Duration whole_time(const IterationSample& sample) {
  const IterationTime time = time_of(sample);
  return time.compute + time.transfer;
}

std::string recording_header(std::string_view name, size_t replicas) {
  return cat("samples ", name, " replicas ", replicas);
}

std::string sample_line(size_t replica, const IterationSample& of) {
  return cat(replica, " ", of.compute.count(), " ", of.send.count(), " ", of.receive.count(), " ",
             of.run_delay.count(), " ", of.cpu.count(), " ", of.pressure, " ", of.share);
}

std::string to_text(const Recording& recording) {
  std::string text = recording_header(recording.name, recording.replicas.size()) + "\n";
  for (size_t i = 0; i < recording.replicas.front().size(); ++i) {
    for (size_t replica = 0; replica < recording.replicas.size(); ++replica) {
      text += sample_line(replica, recording.replicas[replica][i]) + "\n";
    }
  }
  return text;
}

Result<Recording> recording_from_text(std::string_view text, std::string_view source) {
  const std::vector<LinePiece> lines = lines_of(text);
  if (lines.empty()) {
    return invalid(cat(source, ": expected 'samples NAME replicas W', found nothing"));
  }
  if (std::ssize(lines) - 1 > kMostRecordedSamples) {
    return invalid(cat(source, ": expected at most ", kMostRecordedSamples, " samples, found ",
                       lines.size() - 1));
  }
  auto header = header_of(lines.front(), source);
  if (!header.ok()) return header.error();
  Recording recording = std::move(header).value();
  constexpr size_t kWords = 8;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<LinePiece> words = words_of(lines[i], kWords + 1);
    if (words.size() != kWords) {
      return error_at(source, lines[i],
                      cat("expected a replica and seven numbers, found ", words.size(), " words"));
    }
    const std::optional<double> replica = finite_number(words[0].text);
    if (!replica || *replica < 0 || *replica >= static_cast<double>(recording.replicas.size()) ||
        *replica != std::floor(*replica)) {
      return error_at(source, words[0],
                      cat("expected a replica from 0 to ", recording.replicas.size() - 1,
                          found_text(words[0].text)));
    }
    auto sample = sample_of(words, source);
    if (!sample.ok()) return sample.error();
    recording.replicas[static_cast<size_t>(*replica)].push_back(sample.value());
  }
  for (size_t i = 0; i < recording.replicas.size(); ++i) {
    const size_t expected = std::max<size_t>(1, recording.replicas.front().size());
    if (recording.replicas[i].size() == expected) continue;
    return invalid(cat(source, ": expected ", expected, " samples of replica ", i, ", found ",
                       recording.replicas[i].size()));
  }
  return recording;
}

Recording record_scenario(const SyncScenario& scenario, const std::vector<CpuHog>& hogs,
                          int64_t iterations, uint64_t seed) {
  const IterationTimes times = times_of(scenario, seed);
  Recording recording;
  recording.name = scenario.name;
  for (int32_t replica = 0; replica < scenario.replicas; ++replica) {
    std::vector<IterationSample> samples;
    Random random(mix(seed, static_cast<uint64_t>(replica)));
    bool taken = false;
    Duration now{};
    for (int64_t i = 0; i < iterations; ++i) {
      const IterationTime time = times(replica, i, now);
      IterationSample sample;
      sample.compute = sample.cpu = time.compute;
      sample.send = time.transfer / 2;
      sample.receive = time.transfer - sample.send;
      for (const CpuHog& hog : hogs) {
        if (hog.replica != replica) continue;
        const double luck = random.uniform();
        taken = taken ? luck >= hog.ends : luck < hog.begins;
        if (!taken) continue;
        sample.run_delay = scaled(time.compute, hog.slower - 1);
        sample.compute += sample.run_delay;
        sample.pressure = 1 - 1 / hog.slower;
      }
      now += whole_time(sample);
      samples.push_back(sample);
    }
    recording.replicas.push_back(std::move(samples));
  }
  return recording;
}

}  // namespace tenuto
