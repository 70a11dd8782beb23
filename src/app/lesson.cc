#include "app/lesson.h"

#include <algorithm>
#include <span>

#include "base/text.h"
#include "runtime/tag.h"
#include "runtime/worker.h"

namespace tenuto {
namespace {

// The share of the time between two parts that one part may take until it has arrived.
constexpr double kShare = 0.05;

template <class Form>
std::span<std::byte> bytes_of(Form& form) {
  return std::as_writable_bytes(std::span(&form, 1));
}

}  // namespace

Status Lessons::begin(const std::vector<Newcomer>& newcomers, const LessonTime& time) {
  for (const Newcomer& newcomer : newcomers) {
    if (newcomer.plan_serial < 0 || newcomer.plan_serial > time.plan_serial) continue;
    for (size_t i = 0; i < newcomer.stages.size() && i < newcomer.donors.size(); ++i) {
      const bool gives = newcomer.donors[i] == time.self;
      if (!gives && newcomer.worker != time.self) continue;
      Lesson& lesson = lessons_[{newcomer.worker, newcomer.stages[i]}];
      if (lesson.over() && lesson.open.empty()) lesson.body = {};
      lesson.stage = newcomer.stages[i];
      lesson.gives = gives;
      lesson.peer = gives ? newcomer.worker : newcomer.donors[i];
      lesson.due = !lesson.over();
    }
  }
  return advance(time);
}

Status Lessons::advance(const LessonTime& time) {
  if (!failed_.ok()) return failed_;
  for (auto& [name, lesson] : lessons_) {
    if (!lesson.open.empty()) continue;
    Status done = ok();
    if (lesson.due) {
      done = lesson.gives ? give(lesson, time) : ask(lesson, time);
    } else if (!lesson.gives && lesson.head.version >= 0) {
      done = take(lesson, time);
    }
    if (!done.ok()) return done;
  }
  const bool all = std::all_of(lessons_.begin(), lessons_.end(), [](const auto& each) {
    return each.second.gives || each.second.over();
  });
  const bool learns = std::any_of(lessons_.begin(), lessons_.end(),
                                  [](const auto& each) { return !each.second.gives; });
  if (learns && all && learned_ < 0) learned_ = time.version;
  return ok();
}

bool Lessons::ready() const {
  return std::all_of(lessons_.begin(), lessons_.end(), [](const auto& each) {
    const Lesson& lesson = each.second;
    return !lesson.due && (lesson.gives || lesson.open.empty());
  });
}

// Copies the part, so that only the learner has to wait until it has arrived.
Status Lessons::give(Lesson& lesson, const LessonTime& time) {
  lesson.due = false;
  lesson.total = time.compute->state_bytes(lesson.stage);
  if (lesson.portion == 0) lesson.portion = sizes_.first;
  const Duration most(
      static_cast<int64_t>(kShare * static_cast<double>((time.now - lesson.since).count())));
  if (lesson.next > 0) {
    lesson.portion = lesson.took <= most ? std::min(sizes_.most, lesson.portion * 2)
                                         : std::max(sizes_.least, lesson.portion / 2);
  }
  lesson.since = time.now;
  const int64_t unit = time.compute->state_unit(lesson.stage);
  const int64_t whole = std::max(unit, lesson.portion / unit * unit);
  lesson.head = {time.version, lesson.next, std::min(whole, lesson.total - lesson.next),
                 lesson.total, time.voids};
  lesson.body.resize(static_cast<size_t>(lesson.head.size));
  const Status copied = time.compute->read_state(lesson.stage, lesson.next, lesson.body);
  if (!copied.ok()) return copied;
  lesson.next += lesson.head.size;
  lesson.begun = time.now;
  const auto send = [&](bool body, std::span<const std::byte> bytes) {
    const Ticket ticket = fresh_ticket();
    lesson.open.insert(ticket);
    return time.transport->send(lesson.peer,
                                tag_of_lesson(lesson.stage, body, time.epoch, time.version), bytes,
                                Stamp{}, ticket);
  };
  if (Status head = send(false, bytes_of(lesson.head)); !head.ok()) return head;
  return send(true, lesson.body);
}

// Receives the head first: it tells how much follows.
Status Lessons::ask(Lesson& lesson, const LessonTime& time) {
  lesson.due = lesson.in_body = false;
  lesson.head = {.version = time.version};
  const Ticket ticket = fresh_ticket();
  lesson.open.insert(ticket);
  return time.transport->recv(lesson.peer,
                              tag_of_lesson(lesson.stage, false, time.epoch, time.version),
                              bytes_of(lesson.head), ticket);
}

Status Lessons::take(Lesson& lesson, const LessonTime& time) {
  const Head& head = lesson.head;
  if (!lesson.in_body) {
    const int64_t total = time.compute->state_bytes(lesson.stage);
    if (head.version != time.version || head.first != lesson.next || head.total != total ||
        head.size <= 0 || head.size > total - head.first ||
        head.size % time.compute->state_unit(lesson.stage) != 0) {
      return Error{
          Code::Corrupt, Reach::Job,
          cat("worker ", lesson.peer, " gives bytes ", head.first, " to ", head.first + head.size,
              " of ", head.total, " of stage ", lesson.stage, ", version ", head.version,
              ": expected those from ", lesson.next, " on of ", total, ", version ", time.version)};
    }
    lesson.in_body = true;
    lesson.body.resize(static_cast<size_t>(head.size));
    const Ticket ticket = fresh_ticket();
    lesson.open.insert(ticket);
    return time.transport->recv(lesson.peer,
                                tag_of_lesson(lesson.stage, true, time.epoch, time.version),
                                lesson.body, ticket);
  }
  const Status written = time.compute->write_state(lesson.stage, head.first, lesson.body);
  if (!written.ok()) return written;
  voids_ = head.voids;
  lesson.next = head.first + head.size;
  lesson.total = head.total;
  lesson.head = {};
  return ok();
}

bool Lessons::note(const Done& done, Duration now) {
  if (done.ticket == kNoTicket) return false;
  for (auto& [name, lesson] : lessons_) {
    if (lesson.open.erase(done.ticket) == 0) continue;
    if (!done.status.ok() && !lesson.gives) failed_ = done.status;
    if (lesson.open.empty()) lesson.took = now - lesson.begun;
    return true;
  }
  return false;
}

void Lessons::start_over() {
  lessons_.clear();
  learned_ = -1;
  failed_ = ok();
}

}  // namespace tenuto
