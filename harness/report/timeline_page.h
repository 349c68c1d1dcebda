// The fixed text of timeline.html: style, markup and script, as string literals. timeline.cc puts
// them around the data of a run.
//
// Threads, ownership: constants.
#ifndef HARNESS_REPORT_TIMELINE_PAGE_H_
#define HARNESS_REPORT_TIMELINE_PAGE_H_

namespace kv::drill {

extern const char* const kTimelineStyle;
extern const char* const kTimelineBody;
// The parts of one script, in this order: what the data means, how it is drawn, what the hunter's
// hands do.
extern const char* const kTimelineModel;
extern const char* const kTimelineDrawing;
extern const char* const kTimelineAxis;
extern const char* const kTimelineHands;
extern const char* const kTimelineInput;

}  // namespace kv::drill

#endif  // HARNESS_REPORT_TIMELINE_PAGE_H_
