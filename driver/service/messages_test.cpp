#include "driver/service/messages.h"

#include <stdexcept>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cases/case_json.h"
#include "driver/testing/scoped_variable.h"
#include "worker/protocol/field_json.h"

namespace cp_pool::service {
namespace {

using nlohmann::json;
using test::ScopedVariable;
using namespace ::testing;

template <typename T>
inline constexpr bool kIsFigures = std::is_same_v<T, OutcomeCounts>;

// Gives every field a value that differs from its default and from those of all other fields.
template <typename T>
void fill(T& value, int& next) {
  if constexpr (HasFields<T> && !std::is_same_v<T, Payload>) {
    for_each_field<T>([&](const auto& field) { fill(std::invoke(field.access, value), next); });
  } else if constexpr (std::is_same_v<T, Payload>) {
    value = parse_case({{"model", fmt::format("m{}", ++next)},
                        {"cp_size", 2},
                        {"batch", 1},
                        {"seqlen_q", 16},
                        {"seqlen_kv", 16},
                        {"heads", 1},
                        {"kv_heads", 1},
                        {"head_dim_qk", 8},
                        {"head_dim_v", 8}},
                       "case");
  } else if constexpr (std::is_same_v<T, json>) {
    value = {{"event", "case_started"}, {"index", ++next}};
  } else if constexpr (protocol::kIsOptional<T>) {
    fill(value.emplace(), next);
  } else if constexpr (protocol::kIsList<T>) {
    for (int i = 0; i < 2; ++i) {
      typename T::value_type item{};
      fill(item, next);
      value.insert(value.end(), std::move(item));
    }
  } else if constexpr (kIsFigures<T>) {
    for (auto& count : value) count = static_cast<std::size_t>(++next);
  } else if constexpr (std::is_same_v<T, bool>) {
    value = !value;
  } else if constexpr (std::is_enum_v<T>) {
    value = static_cast<T>(static_cast<int>(value) + 1);
  } else if constexpr (std::is_arithmetic_v<T>) {
    value = static_cast<T>(1000) + static_cast<T>(++next);
    if constexpr (std::is_floating_point_v<T>) value += 0.5;
  } else if constexpr (std::is_same_v<T, std::chrono::milliseconds>) {
    value = T{1000 + ++next};
  } else {
    value = fmt::format("text {} \"\\\n\x1b é", ++next);
  }
}

template <typename Message>
Message filled() {
  Message out;
  int next = 0;
  fill(out, next);
  return out;
}

// --- Both ways ---

template <typename Variant, std::size_t... I>
void for_each_message(std::index_sequence<I...> /*unused*/, const auto& visit) {
  (visit(std::type_identity<std::variant_alternative_t<I, Variant>>{}), ...);
}

template <typename Variant>
void for_each_message(const auto& visit) {
  for_each_message<Variant>(std::make_index_sequence<std::variant_size_v<Variant>>{}, visit);
}

// Expects that a message survives being written and read: the line that is read is written the same.
template <typename Variant, typename Message>
void expect_round_trip(const Message& message, const char* key, const auto& read) {
  const std::string line = line_of(Variant{message});
  EXPECT_THAT(line, EndsWith("\n"));
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "a message is one line: " << line;
  EXPECT_EQ(json::parse(line)[key], Message::kName);
  const Variant back = read(json::parse(line));
  ASSERT_TRUE(std::holds_alternative<Message>(back)) << line;
  EXPECT_EQ(line_of(back), line);
}

TEST(ServiceMessages, EveryRequestIsReadAsItWasWritten) {
  for_each_message<Request>([]<typename Message>(std::type_identity<Message>) {
    SCOPED_TRACE(Message::kName);
    const auto read = [](const json& line) { return read_request(line); };
    expect_round_trip<Request>(filled<Message>(), "request", read);
    // A default Submit is left out, because its case has no sizes and is not valid.
    if constexpr (!std::is_same_v<Message, Submit>) expect_round_trip<Request>(Message{}, "request", read);
  });
}

TEST(ServiceMessages, EveryReplyIsReadAsItWasWritten) {
  for_each_message<Reply>([]<typename Message>(std::type_identity<Message>) {
    SCOPED_TRACE(Message::kName);
    const auto read = [](const json& line) { return read_reply(line).value(); };
    expect_round_trip<Reply>(filled<Message>(), "reply", read);
  });
}

// The round trip above would not notice a field that is never written.
TEST(ServiceMessages, EveryFieldOfAFilledMessageIsInItsLine) {
  const auto expect_all = []<typename Message>(std::type_identity<Message>, const json& line) {
    for_each_field<Message>(
        [&](const auto& field) { EXPECT_TRUE(line.contains(field.name)) << Message::kName << ": " << field.name; });
  };
  for_each_message<Request>([&]<typename Message>(std::type_identity<Message> type) {
    expect_all(type, json::parse(line_of(Request{filled<Message>()})));
  });
  for_each_message<Reply>([&]<typename Message>(std::type_identity<Message> type) {
    expect_all(type, json::parse(line_of(Reply{filled<Message>()})));
  });
}

TEST(ServiceMessages, ANumberOutOfRangeIsRefusedByFieldAndValue) {
  const auto refusal_of = [](json request) -> std::string {
    request["run"] = "r";
    if (request["request"] == "submit") request["case"] = filled<Submit>().payload->json();
    try {
      read_request(request);
      return "";
    } catch (const protocol::ProtocolError& error) {
      return error.what();
    }
  };
  const auto with = [](const char* name, const char* field, const json& value) -> json {
    return {{"request", name}, {field, value}};
  };
  for (const double ms : {0.0, 0.5, -1.0, 1e300, 3600000001.0}) {
    EXPECT_THAT(refusal_of(with("submit", "timeout_ms", ms)), HasSubstr("submit: \"timeout_ms\""));
    EXPECT_THAT(refusal_of(with("open", "timeout_ms", ms)), HasSubstr("open: \"timeout_ms\""));
    EXPECT_THAT(refusal_of(with("open", "start_timeout_ms", ms)), HasSubstr("open: \"start_timeout_ms\""));
  }
  EXPECT_THAT(refusal_of(with("open", "timeout_ms", "nan")), HasSubstr("nan"));
  for (const char* const field : {"grace_ms", "global_timeout_ms", "slow_after_ms", "diagnosis_time_ms"}) {
    EXPECT_EQ(refusal_of(with("open", field, 0)), "");
    EXPECT_THAT(refusal_of(with("open", field, -1)), AllOf(HasSubstr(field), EndsWith("got -1")));
    EXPECT_THAT(refusal_of(with("open", field, 1e300)), HasSubstr(field));
  }
  for (const char* const field : {"max_consecutive_timeouts", "max_failures", "retries", "bound_factor"}) {
    EXPECT_THAT(refusal_of(with("open", field, -1)), AllOf(HasSubstr(field), EndsWith("got -1")));
  }
  EXPECT_THAT(refusal_of(with("submit", "retries", -1)), HasSubstr("\"retries\""));
  EXPECT_THAT(refusal_of(with("submit", "repetition", 0)), HasSubstr("\"repetition\""));
  EXPECT_THAT(refusal_of(with("submit", "repetition", 2)), HasSubstr("\"repetitions\": expected at least 2, got 1"));
  EXPECT_THAT(refusal_of(with("submit", "ranks", {{"slots", -1}})), HasSubstr("ranks: \"slots\""));
  EXPECT_EQ(refusal_of(with("submit", "timeout_ms", 3600000000.0)), "");
}

TEST(ServiceMessages, WhatIsLeftOutHasItsDefault) {
  const auto open = std::get<Open>(read_request({{"request", "open"}, {"run", "r"}}));
  EXPECT_EQ(line_of(Request{open}), line_of(Request{[] {
              Open expected;
              expected.run = "r";
              return expected;
            }()}));
  EXPECT_EQ(open.timeout, std::chrono::milliseconds{90000});
  EXPECT_FALSE(open.environment.has_value());
}

// An empty environment is not the same as none.
TEST(ServiceMessages, AnEmptyEnvironmentStaysOne) {
  Open open;
  open.run = "r";
  open.environment.emplace();
  const auto back = std::get<Open>(read_request(json::parse(line_of(Request{open}))));
  ASSERT_TRUE(back.environment.has_value());
  EXPECT_TRUE(back.environment->empty());
}

TEST(ServiceMessages, InvalidUtf8OfAClientBecomesALineAllTheSame) {
  const json line = json::parse(line_of(Request{Hello{.protocol = 1, .version = "\xff", .client = "a\xc3"}}));
  EXPECT_EQ(line.at("client"), "a\uFFFD");
}

TEST(ServiceMessages, AReplyOfALaterVersionIsNone) {
  EXPECT_FALSE(read_reply({{"reply", "of tomorrow"}, {"x", 1}}));
  EXPECT_FALSE(read_reply(json::object()));
}

TEST(ServiceMessages, AFieldOfALaterVersionIsLeftAlone) {
  EXPECT_NO_THROW(read_request({{"request", "close"}, {"run", "r"}, {"of_tomorrow", {1, 2}}}));
}

// --- What is no message ---

std::string error_of(const json& line) {
  try {
    read_request(line);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(ServiceMessages, WhatIsNoObjectIsNoRequest) {
  for (const json& line : {json(3), json("open"), json::array({1}), json(nullptr)}) {
    EXPECT_THAT(error_of(line), HasSubstr("a request is a JSON object")) << line;
  }
}

TEST(ServiceMessages, AnUnknownRequestIsNamedWithTheKnownOnes) {
  EXPECT_THAT(error_of({{"request", "cancle"}}), AllOf(HasSubstr("\"cancle\""), HasSubstr("hello, open, submit")));
  EXPECT_THAT(error_of({{"run", "r"}}), HasSubstr("\"request\""));
  EXPECT_THAT(error_of({{"request", 7}}), AllOf(HasSubstr("\"request\""), HasSubstr("7")));
}

TEST(ServiceMessages, AMissingFieldIsNamed) {
  const std::pair<const char*, const char*> required[] = {
      {"hello", "protocol"}, {"open", "run"}, {"submit", "run"}, {"close", "run"}, {"cancel", "run"}};
  for (const auto& [request, field] : required) {
    EXPECT_THAT(error_of({{"request", request}}), AllOf(HasSubstr(request), HasSubstr(field)));
  }
  EXPECT_THAT(error_of({{"request", "submit"}, {"run", "r"}}), HasSubstr("case"));
}

TEST(ServiceMessages, AFieldOfAnotherTypeIsNamedWithItsValue) {
  struct Wrong {
    json line;
    const char* field;
    const char* value;
  };
  const json run = {{"request", "open"}, {"run", "r"}};
  const auto with = [&](const char* field, json value) {
    json out = run;
    out[field] = std::move(value);
    return out;
  };
  const Wrong wrong[] = {{{{"request", "hello"}, {"protocol", "one"}}, "protocol", "\"one\""},
                         {{{"request", "hello"}, {"protocol", 1.5}}, "protocol", "1.5"},
                         {{{"request", "open"}, {"run", 12}}, "run", "12"},
                         {with("worker", "python3 w.py"), "worker", "python3 w.py"},
                         {with("worker", {"a", 4}), "worker", "4"},
                         {with("environment", {{"A", "B"}}), "environment", "{\"A\":\"B\"}"},
                         {with("share_gpus", "yes"), "share_gpus", "\"yes\""},
                         {with("timeout_ms", "30s"), "timeout_ms", "\"30s\""},
                         {with("max_failures", 1.25), "max_failures", "1.25"},
                         {{{"request", "cancel"}, {"run", "r"}, {"kill", 1}}, "kill", "1"},
                         {{{"request", "submit"}, {"run", "r"}, {"case", 3}}, "case", "3"}};
  for (const Wrong& one : wrong) {
    EXPECT_THAT(error_of(one.line), AllOf(HasSubstr(one.field), HasSubstr(one.value))) << one.line;
  }
}

TEST(ServiceMessages, AWrongFieldOfACaseIsNamed) {
  EXPECT_THAT(error_of({{"request", "submit"}, {"run", "r"}, {"case", {{"model", "m"}, {"cp_sise", 2}}}}),
              AllOf(HasSubstr("case"), HasSubstr("cp_sise")));
  EXPECT_THAT(error_of({{"request", "submit"}, {"run", "r"}, {"case", {{"model", "m"}, {"cp_size", "two"}}}}),
              AllOf(HasSubstr("cp_size"), HasSubstr("two")));
}

TEST(ServiceMessages, ASubmitMayHoldACall) {
  Submit submit = filled<Submit>();
  submit.payload = Call{.function = "m:f", .arguments = {{"n", 3}}, .cp_size = 4};
  const json line = json::parse(line_of(Request{submit}));
  EXPECT_FALSE(line.contains("case"));
  EXPECT_EQ(line.at("call"), json(submit.payload->json()));
  EXPECT_EQ(std::get<Submit>(read_request(line)).payload, submit.payload);
}

TEST(Environment, OfThisProcessIsSortedAndKeepsWhatStandsBehindTheFirstEquals) {
  const ScopedVariable odd{"CP_POOL_TEST_ODD", "a=b="};
  const ScopedVariable empty{"CP_POOL_TEST_EMPTY", ""};
  const Variables own = own_environment();
  EXPECT_THAT(own, WhenSorted(own));
  EXPECT_THAT(own, Contains(Pair("CP_POOL_TEST_ODD", "a=b=")));
  EXPECT_THAT(own, Contains(Pair("CP_POOL_TEST_EMPTY", "")));
  EXPECT_THAT(rank_variables(own), Contains("CP_POOL_TEST_ODD=a=b="));
}

TEST(Environment, WhatMattersIsReplacedAndAllElseIsTheServices) {
  const Variables base{{"HOME", "/service"}, {"OMP_NUM_THREADS", "1"}, {"PATH", "/service/bin"}};
  EXPECT_THAT(with_rank_variables(base, {"PATH=/client/bin", "CUDA_X="}),
              ElementsAre(Pair("CUDA_X", ""), Pair("HOME", "/service"), Pair("PATH", "/client/bin")));
  EXPECT_THAT(with_rank_variables(base, {}), ElementsAre(Pair("HOME", "/service")));
}

// So clients in different terminals share pools.
TEST(Environment, WhatDoesNotMatterIsNotTakenFromAClient) {
  EXPECT_THAT(with_rank_variables({{"TERM", "dumb"}}, {"TERM=xterm", "SHLVL=3"}), ElementsAre(Pair("TERM", "dumb")));
}

TEST(Environment, GoesThroughAMessageUnchanged) {
  const Variables base{{"HOME", "/home"}, {"LD_PRELOAD", "x=y"}, {"OMP_NUM_THREADS", ""}};
  EXPECT_EQ(with_rank_variables(base, rank_variables(base)), base);
}

TEST(Environment, AnEntryThatIsNoVariableIsNamed) {
  for (const std::string entry : {"PATH", "=x", ""}) {
    EXPECT_THAT([&] { with_rank_variables({}, {"OMP_A=1", entry}); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("'" + entry + "' is no NAME=VALUE")));
  }
  EXPECT_THROW(with_rank_variables({}, {std::string{"PATH=a\0b", 8}}), std::invalid_argument);
}

}  // namespace
}  // namespace cp_pool::service
