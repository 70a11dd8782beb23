#include "communicators.h"

#include <algorithm>

namespace tenuto {

namespace {

bool is_whole(Element element) {
  return element == Element::Int32 || element == Element::Int64 || element == Element::UInt8;
}

// The unit roundoff of the element type.
double unit_of(Element element) {
  switch (element) {
    case Element::Float32:
      return 0x1p-24;
    case Element::Float64:
      return 0x1p-53;
    case Element::BFloat16:
      return 0x1p-8;
    case Element::Float16:
      return 0x1p-11;
    default:
      return 0;
  }
}

template <class Number>
void put(std::byte* at, Number number) {
  std::memcpy(at, &number, sizeof(number));
}

template <class Number>
double get(const std::byte* at) {
  Number number;
  std::memcpy(&number, at, sizeof(number));
  return static_cast<double>(number);
}

void write(Element element, std::byte* at, double number) {
  switch (element) {
    case Element::Float32:
      return put(at, static_cast<float>(number));
    case Element::Float64:
      return put(at, number);
    case Element::BFloat16:
      return put(at, bfloat_of_float(static_cast<float>(number)));
    case Element::Float16:
      return put(at, half_of_float(static_cast<float>(number)));
    case Element::Int32:
      return put(at, static_cast<int32_t>(number));
    case Element::Int64:
      return put(at, static_cast<int64_t>(number));
    case Element::UInt8:
      return put(at, static_cast<uint8_t>(static_cast<int64_t>(number)));
  }
}

double read(Element element, const std::byte* at) {
  uint16_t bits = 0;
  if (size_of(element) == 2) std::memcpy(&bits, at, sizeof(bits));
  switch (element) {
    case Element::Float32:
      return get<float>(at);
    case Element::Float64:
      return get<double>(at);
    case Element::BFloat16:
      return float_of_bfloat(bits);
    case Element::Float16:
      return float_of_half(bits);
    case Element::Int32:
      return get<int32_t>(at);
    case Element::Int64:
      return get<int64_t>(at);
    case Element::UInt8:
      return get<uint8_t>(at);
  }
  return 0;
}

// The number, rounded to the element type.
double rounded(Element element, double number) {
  std::byte bytes[8];
  write(element, bytes, number);
  return read(element, bytes);
}

CallWay draw_way(Random& random, const std::vector<WorkerId>& members) {
  std::vector<const AlgorithmCard*> cards;
  for (const NamedAlgorithm& each : algorithms()) {
    if (each.card.goal == Goal::AllReduce) cards.push_back(&each.card);
  }
  const auto pick = static_cast<size_t>(random.below(static_cast<int64_t>(cards.size()) + 1));
  if (pick == cards.size()) return {"auto"};
  CallWay way{cards[pick]->name};
  if (random.below(2) == 0) way.chunks = static_cast<int32_t>(1 + random.below(20));
  if (cards[pick]->late_most == 0) return way;
  const auto count = static_cast<int64_t>(members.size());
  const int64_t late = cards[pick]->late_most < 0 && count > 4 ? 1 + random.below(2) : 1;
  while (static_cast<int64_t>(way.late.size()) < late) {
    const WorkerId each = members[static_cast<size_t>(random.below(count))];
    if (std::find(way.late.begin(), way.late.end(), each) == way.late.end()) {
      way.late.push_back(each);
    }
  }
  return way;
}

}  // namespace

DrawnCall draw_call(Random& random, const std::vector<WorkerId>& members, int64_t most_elements) {
  DrawnCall call;
  const auto count = static_cast<int64_t>(members.size());
  const int64_t kind = random.below(8);
  if (kind >= 3) call.request.kind = CallKind::AllReduce;
  if (kind < 3) call.request.kind = static_cast<CallKind>(kind + 1);
  call.request.element = kElements[static_cast<size_t>(random.below(kElements.size()))];
  call.request.operation = kOperations[static_cast<size_t>(random.below(kOperations.size()))];
  if (call.request.kind == CallKind::AllReduce) call.request.way = draw_way(random, members);
  call.request.root = members[static_cast<size_t>(random.below(count))];
  const int64_t size = random.below(8);
  call.elements = size == 0 ? 0 : size == 1 ? random.below(count) : random.below(most_elements);
  call.whole = random.below(2) == 0;
  call.in_place = random.below(2) == 0;
  call.seed = random.next();
  return call;
}

double number_of(const DrawnCall& call, int32_t place, int64_t i) {
  const uint64_t bits = mix(call.seed, static_cast<uint64_t>(place), static_cast<uint64_t>(i));
  const Element element = call.request.element;
  if (element == Element::UInt8) return static_cast<double>(bits % 256);
  if (is_whole(element) || call.whole) return static_cast<double>(bits % 17) - 8;
  return rounded(element, static_cast<double>(bits >> 11) * 0x1p-53 * 2 - 1);
}

std::vector<std::byte> tensor_of(const DrawnCall& call, int32_t place) {
  const size_t size = size_of(call.request.element);
  std::vector<std::byte> bytes(static_cast<size_t>(call.elements) * size);
  for (int64_t i = 0; i < call.elements; ++i) {
    write(call.request.element, bytes.data() + static_cast<size_t>(i) * size,
          number_of(call, place, i));
  }
  return bytes;
}

ElementRange result_range(const DrawnCall& call, int32_t place, int32_t count) {
  if (call.request.kind == CallKind::ReduceScatter) return own_range(call.elements, place, count);
  return {0, call.elements};
}

std::string difference(const DrawnCall& call, std::span<const std::byte> total, int32_t place,
                       const std::vector<WorkerId>& members) {
  const Element element = call.request.element;
  const auto count = static_cast<int32_t>(members.size());
  const ElementRange range = result_range(call, place, count);
  for (int64_t i = range.first; i < range.end; ++i) {
    const double found = read(element, total.data() + static_cast<size_t>(i) * size_of(element));
    double wanted = number_of(call, 0, i), slack = 0, sizes = std::fabs(wanted);
    const Operation operation = call.request.operation;
    if (call.request.kind == CallKind::Broadcast) {
      wanted = number_of(call, call.request.root.value - members.front().value, i);
    } else if (call.request.kind == CallKind::AllGather) {
      int32_t owner = 0;
      while (own_range(call.elements, owner, count).end <= i) ++owner;
      wanted = number_of(call, owner, i);
    } else {
      for (int32_t m = 1; m < count; ++m) {
        const double number = number_of(call, m, i);
        sizes += std::fabs(number);
        wanted = operation == Operation::Min   ? std::min(wanted, number)
                 : operation == Operation::Max ? std::max(wanted, number)
                                               : wanted + number;
      }
      const bool sums = operation == Operation::Sum || operation == Operation::Average;
      // Each of the n - 1 additions, and the division, is off by at most one unit roundoff of the
      // sum so far. The factor of two covers the higher-order terms.
      if (sums && !is_whole(element) && !call.whole) slack = 2 * count * unit_of(element) * sizes;
      if (element == Element::UInt8) wanted = rounded(element, wanted);
      if (operation == Operation::Average) {
        wanted = is_whole(element) ? std::trunc(wanted / count) : rounded(element, wanted / count);
        slack /= count;
      }
    }
    if (std::fabs(found - wanted) <= slack) continue;
    return cat("element ", i, " of ", call.elements, " is ", found, ", expected ", wanted,
               " within ", slack, ": ", name_of(element), " ", name_of(operation), ", kind ",
               static_cast<int>(call.request.kind), ", algorithm '", call.request.way.algorithm,
               "', chunks ", call.request.way.chunks, ", place ", place, " of ", count);
  }
  return {};
}

}  // namespace tenuto
