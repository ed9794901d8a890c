package metricsapi

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestKubeletResourceMetricsAreParsed(t *testing.T) {
	body, err := os.ReadFile("testdata/resource.txt")
	must(t, err)
	e, err := parse(body, time.Now())
	must(t, err)
	if e.node.Seconds != 357.35491 || e.node.WorkingSet != 1616273408 || e.node.At.UnixMilli() != 1633253809720 {
		t.Errorf("node = %+v, want the values of testdata/resource.txt", e.node)
	}
	web := e.pods[PodKey{Namespace: "shop", Name: "web-1"}]
	if c := web["main"]; len(web) != 2 || c.Seconds != 10.5 || c.WorkingSet != 1<<20 || c.Started.Unix() != 1633252678 || c.At.UnixMilli() != 1633253809720 {
		t.Errorf("Pod shop/web-1 = %+v, want one container with the values of testdata/resource.txt", web)
	}
	if len(e.pods) != 2 || e.halves != 1 {
		t.Errorf("%d Pods and %d halves, want 2 and 1: a container without memory has stopped, and its Pod is incomplete", len(e.pods), e.halves)
	}
}

const nodeLines = "node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 2\n"

func TestExpositions(t *testing.T) {
	scraped := time.UnixMilli(5000)
	for _, c := range []struct {
		situation, body, wrong string
	}{
		{"no timestamps", nodeLines, ""},
		{"tabs, and no newline at the end", "node_cpu_usage_seconds_total\t1\nnode_memory_working_set_bytes\t2", ""},
		{"other metrics may be anything", nodeLines + "other{ nonsense\n", ""},
		{"a label with every escape", nodeLines + `container_cpu_usage_seconds_total{pod="a\\b\"c\nd",namespace="}",container="x"} 1` + "\n", ""},
		{"spaces in labels", nodeLines + `container_cpu_usage_seconds_total{ pod = "p" , namespace="n",container="c", } 1`, ""},
		{"the root of all containers", nodeLines + `container_cpu_usage_seconds_total{id="/"} 1`, ""},
		{"no node", "up 1\n", "own CPU or memory"},
		{"an HTML page", "<html><body>Login</body></html>", "own CPU or memory"},
		{"a node that is not a number", strings.Replace(nodeLines, " 1", " NaN", 1), "out of range"},
		{"a negative value", strings.Replace(nodeLines, " 2", " -2", 1), "line 2: node_memory_working_set_bytes: value -2"},
		{"a value beyond memory", strings.Replace(nodeLines, " 2", " 1e300", 1), "out of range"},
		{"no value", "node_cpu_usage_seconds_total \n", "0 words"},
		{"too many words", "node_cpu_usage_seconds_total 1 2 3\n", "3 words"},
		{"a timestamp that is none", "node_cpu_usage_seconds_total 1 now\n", "timestamp"},
		{"labels that do not end", nodeLines + `container_cpu_usage_seconds_total{pod="p"`, "labels do not end"},
		{"a value that does not end", nodeLines + `container_cpu_usage_seconds_total{pod="p`, "does not end"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			e, err := parse([]byte(c.body), scraped)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("parse error = %v, want an error that contains %q", err, c.wrong)
				}
				return
			}
			must(t, err)
			if e.node.Seconds != 1 || e.node.WorkingSet != 2 || !e.node.At.Equal(scraped) {
				t.Errorf("node = %+v, want 1 second and 2 bytes at the time of the scrape", e.node)
			}
		})
	}
}

func TestLabelsAreUnescaped(t *testing.T) {
	labels, rest, err := parseLabels(`pod="a\\b\"c\nd",namespace="}"} 1`)
	must(t, err)
	if labels["pod"] != "a\\b\"c\nd" || labels["namespace"] != "}" || rest != " 1" {
		t.Errorf("parseLabels = %q, rest %q, want unescaped labels and the rest \" 1\"", labels, rest)
	}
}

func FuzzParse(f *testing.F) {
	body, err := os.ReadFile("testdata/resource.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(nodeLines))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := parse(body, time.Unix(1, 0))
		if err != nil {
			return
		}
		for key, containers := range e.pods {
			if key.Name == "" || len(containers) == 0 {
				t.Errorf("Pod %+v has %d containers, want a name and at least one container", key, len(containers))
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	body, err := os.ReadFile("testdata/resource.txt")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := parse(body, time.Unix(1, 0)); err != nil {
			b.Fatal(err)
		}
	}
}
