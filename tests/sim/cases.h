// Shared by the tests of prices: models of equal layers, and plans and prices that must exist.
#pragma once

#include <gtest/gtest.h>

#include "plan/make_plan.h"
#include "sim/price.h"

namespace tenuto {

// A model of `layers` equal layers.
inline Model equal_model(int32_t layers, double forward_ms, double backward_input_ms,
                         double backward_weight_ms, Bytes activation = {}) {
  Layer layer;
  layer.forward = from_milliseconds(forward_ms);
  layer.backward_input = from_milliseconds(backward_input_ms);
  layer.backward_weight = from_milliseconds(backward_weight_ms);
  layer.activation = activation;
  Model model;
  model.layers.assign(static_cast<size_t>(layers), layer);
  return model;
}

// A shape with one layer a stage, its backward split as the order wants.
inline Shape shape_of(int32_t stages, int32_t pipelines, int32_t micros, const std::string& order) {
  Shape shape;
  shape.stages = stages;
  shape.pipelines = pipelines;
  shape.micros = micros;
  shape.order = order;
  for (const OrderCard& card : order_cards()) {
    if (card.name == order) shape.split_backward = card.splits_backward;
  }
  return shape;
}

// The plan of a shape that must have one.
inline Plan plan_of(const Shape& shape) {
  auto plan = make_plan(shape);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return plan.ok() ? std::move(plan).value() : Plan{};
}

// The price of a plan that must have one.
inline Timeline price_of(const Plan& plan, const Model& model, const Cluster& cluster,
                         const PriceOptions& options = {}) {
  auto timeline = price(plan, model, cluster, options);
  EXPECT_TRUE(timeline.ok()) << (timeline.ok() ? "" : timeline.error().message);
  return timeline.ok() ? std::move(timeline).value() : Timeline{};
}

}  // namespace tenuto
