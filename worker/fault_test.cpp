#include "worker/fault.h"

#include <gmock/gmock.h>

#include "cases/testing/error_text.h"

namespace cp_pool {
namespace {

// Returns the error text of parse_fault.
std::string fault_error_of(const char* text) {
  return test::error_text<FaultSyntaxError>([&] { parse_fault(text); });
}

TEST(ParseFault, ReadsEveryPart) {
  const Fault fault = parse_fault("exit=3@12:inside:te-flash/*:x");
  EXPECT_EQ(fault.kind, Fault::Kind::exit);
  EXPECT_EQ(fault.argument, 3);
  EXPECT_EQ(fault.rank, 12);
  EXPECT_EQ(fault.phase, Fault::Phase::inside);
  EXPECT_EQ(fault.case_glob, "te-flash/*:x");
}

TEST(ParseFault, HitsEveryCaseWithoutAGlob) {
  EXPECT_EQ(parse_fault("throw@0:before").case_glob, "*");
}

TEST(ParseFault, ErrorsSayWhatIsKnown) {
  EXPECT_THAT(fault_error_of("throw"), testing::HasSubstr("expected KIND@RANK:PHASE[:CASE]"));
  EXPECT_THAT(fault_error_of("jump@0:before"), testing::HasSubstr("unknown kind \"jump\"; known: throw, bad_alloc"));
  EXPECT_THAT(fault_error_of("throw@0:during"),
              testing::HasSubstr("unknown phase \"during\"; known: start, before, inside"));
  EXPECT_THAT(fault_error_of("throw@one:before"), testing::HasSubstr("\"one\" is not a number"));
  EXPECT_THAT(fault_error_of("exit=-1@0:before"), testing::HasSubstr("\"-1\" is not a number"));
  EXPECT_THAT(fault_error_of("throw=3@1:before"),
              testing::HasSubstr("only exit, print, print_err, wrong, flaky and slow take a value"));
}

TEST(ParseFault, ReadsWhatAWrongAFlakyAndASlowOneTake) {
  EXPECT_EQ(parse_fault("wrong=dk@1:inside:a/*").tensor, "dk");
  EXPECT_EQ(parse_fault("wrong@1:inside").tensor, "out");
  EXPECT_EQ(parse_fault("wrong=repeat@1:inside").tensor, kRepeatedOut);
  EXPECT_EQ(parse_fault("wrong=repeat_dq@1:inside").tensor, kRepeatedDq);
  EXPECT_EQ(parse_fault("flaky=0.25@1:before").probability, 0.25);
  EXPECT_EQ(parse_fault("flaky=0.25@1:before").seed, 0U);
  EXPECT_EQ(parse_fault("flaky=1,18446744073709551615@1:idle").seed, 18446744073709551615U);
  EXPECT_EQ(parse_fault("slow=1500@0:start").argument, 1500);
  EXPECT_EQ(parse_fault("hang@1:diagnosis").phase, Fault::Phase::diagnosis);
}

TEST(ParseFault, NamesWhatAWrongAFlakyAndASlowOneCannotTake) {
  using testing::HasSubstr;
  EXPECT_THAT(fault_error_of("wrong=dx@1:inside"), HasSubstr("unknown tensor \"dx\"; known: out, lse, max_logit, dq"));
  EXPECT_THAT(fault_error_of("wrong=@1:inside"), HasSubstr("unknown tensor \"\""));
  EXPECT_THAT(fault_error_of("wrong@1:after"), HasSubstr("so it needs phase inside"));
  EXPECT_THAT(fault_error_of("wrong=dq@0:before"), HasSubstr("so it needs phase inside"));
  for (const char* probability : {"flaky", "flaky=", "flaky=-0.1", "flaky=1.1", "flaky=nan", "flaky=x", "flaky=0.1x"}) {
    EXPECT_THAT(fault_error_of((std::string(probability) + "@0:after").c_str()),
                HasSubstr("is not a probability from 0 to 1"))
        << probability;
  }
  EXPECT_THAT(fault_error_of("flaky=0.1,@0:after"), HasSubstr("the seed \"\" is not a number"));
  EXPECT_THAT(fault_error_of("flaky=0.1,-1@0:after"), HasSubstr("the seed \"-1\" is not a number"));
  EXPECT_THAT(fault_error_of("flaky=0.5@0:start"), HasSubstr("phase start belongs to no case"));
  EXPECT_THAT(fault_error_of("slow@0:before"), HasSubstr("slow needs milliseconds, as in slow=500"));
  EXPECT_THAT(fault_error_of("slow=1.5@0:before"), HasSubstr("\"1.5\" is not a number"));
  EXPECT_THAT(fault_error_of("slow=@0:before"), HasSubstr("\"\" is not a number"));
}

TEST(ParseFaults, ReadsWhatTheEnvironmentHolds) {
  const auto faults = parse_faults("  exit=3@0:before \t wrong=dv@1:inside:te-*\nslow=5@2:idle ");
  ASSERT_EQ(faults.size(), 3U);
  EXPECT_EQ(to_string(faults[0]), "exit=3@0:before");
  EXPECT_EQ(to_string(faults[1]), "wrong=dv@1:inside");
  EXPECT_EQ(faults[1].case_glob, "te-*");
  EXPECT_EQ(to_string(faults[2]), "slow=5@2:idle");
  EXPECT_EQ(to_string(parse_fault("flaky=0.5@0:after")), "flaky=0.5,0@0:after");
  EXPECT_TRUE(parse_faults(" ").empty());
  EXPECT_THROW(parse_faults("exit@0:before nonsense"), FaultSyntaxError);
}

}  // namespace
}  // namespace cp_pool
