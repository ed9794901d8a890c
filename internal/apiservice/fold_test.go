package apiservice

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func votesOf(texts ...string) []vote {
	var out []vote
	for i, text := range texts {
		part := strings.SplitN(text+"||", "|", 3)
		names := map[string]vote{"T": {status: "True", reason: passed, message: "all checks passed"}, "F": {status: "False"}, "U": {status: "Unknown"}}
		v := names[part[0]]
		v.replica = string(rune('a' + i))
		if part[1] != "" {
			v.reason, v.message = part[1], strings.TrimRight(part[2], "|")
		}
		out = append(out, v)
	}
	return out
}

func TestFold(t *testing.T) {
	for _, c := range []struct {
		name            string
		votes           []string // status|reason|message
		status, reason  string
		message         string
		everywhere      string
		everywhereWords string
	}{
		{"all well", []string{"T", "T", "T"}, "True", passed, "all checks passed", "True", "every replica"},
		{"one is enough", []string{"F|FailedDiscoveryCheck|refused", "F|FailedDiscoveryCheck|refused", "T"}, "True", passed, "all checks passed", "False", "do not reach the backend: a, b"},
		{"one that cannot know is no harm", []string{"T", "U|ServiceAccessError|x"}, "True", passed, "all checks passed", "False", "do not reach the backend: b"},
		{"none reaches it", []string{"F|FailedDiscoveryCheck|refused", "F|FailedDiscoveryCheck|refused"}, "False", failedDiscoveryCheck, "refused", "False", "no replica"},
		{"alone", []string{"F|ServiceNotFound|gone"}, "False", serviceNotFound, "gone", "False", "no replica"},
		{"the majority's reason", []string{"F|A|1", "F|B|2", "F|B|3"}, "False", "B", "2", "False", "no replica"},
		{"the majority's message for it", []string{"F|A|timeout", "F|B|x", "F|B|y", "F|B|y", "F|A|timeout"}, "False", "B", "y", "False", "no replica"},
		{"a tie is for the first in the alphabet", []string{"F|B|2", "F|A|9"}, "False", "A", "9", "False", "no replica"},
		{"words before none", []string{"F|A|", "F|A|why"}, "False", "A", "why", "False", "no replica"},
		{"most know that it is down", []string{"F|A|1", "U|B|2", "F|A|1"}, "False", "A", "1", "False", "no replica"},
		{"most know nothing", []string{"U|A|1", "U|A|1", "F|B|2"}, "Unknown", "A", "1", "False", "no replica"},
		{"half know that it is down", []string{"U|A|1", "F|B|2"}, "False", "B", "2", "False", "no replica"},
	} {
		t.Run(c.name, func(t *testing.T) {
			votes := votesOf(c.votes...)
			for range 20 { // whoever folds, in whatever order
				got := fold(votes)
				if string(got.Status) != c.status || got.Reason != c.reason || got.Message != c.message {
					t.Fatalf("got %s %s %q, want %s %s %q", got.Status, got.Reason, got.Message, c.status, c.reason, c.message)
				}
				all := everywhere(votes)
				if string(all.Status) != c.everywhere || !strings.Contains(all.Message, c.everywhereWords) || all.Type != availableOnAllReplicas {
					t.Fatalf("everywhere: got %s %q, want %s %q", all.Status, all.Message, c.everywhere, c.everywhereWords)
				}
				rand.Shuffle(len(votes), func(i, j int) { votes[i], votes[j] = votes[j], votes[i] })
			}
		})
	}
}

func TestALongListOfReplicasIsCutShort(t *testing.T) {
	votes := votesOf(append([]string{"T"}, strings.Split(strings.Repeat("F|A|x,", 24)+"F|A|x", ",")...)...)
	if got := everywhere(votes).Message; !strings.HasSuffix(got, "b, c, d, e, f, g, h, i, j, k and 15 more") {
		t.Errorf("got %q", got)
	}
}
