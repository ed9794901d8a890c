package prometheus

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"

	"portico.dev/internal/extserver/httpclient"
)

// Error is an error response of the server.
type Error struct {
	// Code is the HTTP status. Type and Message are errorType and error of the response. Type is empty if the response is not
	// from a Prometheus server.
	Code          int
	Type, Message string
}

func (e *Error) Error() string {
	if e.Type == "" {
		return fmt.Sprintf("prometheus: HTTP %d: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("prometheus: %s: %s", e.Type, e.Message)
}

// Question reports whether the query is invalid, as opposed to an error of the server.
func (e *Error) Question() bool { return e.Type == "bad_data" || e.Type == "execution" }

type envelope struct {
	Status    string          `json:"status"`
	Data      json.RawMessage `json:"data"`
	ErrorType string          `json:"errorType"`
	Error     string          `json:"error"`
	Warnings  []string        `json:"warnings"`
}

func parseEnvelope(a *httpclient.Answer) (data []byte, warnings []string, err error) {
	var e envelope
	if err := json.Unmarshal(a.Body, &e); err != nil || (e.Status != "success" && e.Status != "error") {
		return nil, nil, &Error{Code: a.Code, Message: notPrometheus(a)}
	}
	if e.Status == "error" {
		return nil, nil, &Error{Code: a.Code, Type: e.ErrorType, Message: e.Error}
	}
	return e.Data, e.Warnings, nil
}

// notPrometheus describes a response that is not from a Prometheus server, with the next step.
func notPrometheus(a *httpclient.Answer) string {
	switch {
	case a.Code >= 300 && a.Code < 400:
		return fmt.Sprintf("it redirects to %q; redirects are not followed, so give that URL", a.Header.Get("Location"))
	case a.Code == http.StatusUnauthorized || a.Code == http.StatusForbidden:
		return "the credentials are not accepted; check the token or the client certificate"
	}
	kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil {
		kind = "unknown content"
	}
	return fmt.Sprintf("the answer (%s) is not Prometheus's; check the URL and its path", kind)
}

type queryData struct {
	ResultType string          `json:"resultType"`
	Result     json.RawMessage `json:"result"`
}

type vectorElement struct {
	Metric    map[string]string `json:"metric"`
	Value     *point            `json:"value"`
	Histogram json.RawMessage   `json:"histogram"`
}

// point is a timestamp and a value: [1700000000.123, "0.5"].
type point struct {
	at    time.Time
	value float64
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *point) UnmarshalJSON(raw []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(raw, &pair); err != nil || len(pair) != 2 {
		return errors.New("a sample must be a pair of time and value")
	}
	var at float64
	var value string
	if err := errors.Join(json.Unmarshal(pair[0], &at), json.Unmarshal(pair[1], &value)); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	v, err := strconv.ParseFloat(value, 64) // accepts NaN and +Inf too
	if err != nil {
		return fmt.Errorf("sample value %q: %w", value, err)
	}
	p.at, p.value = time.UnixMilli(int64(at*1000+0.5)), v
	return nil
}

// parseVector parses an instant vector or a scalar. left is the number of native histograms, which are omitted.
func parseVector(data []byte) (samples []Sample, left int, err error) {
	var q queryData
	if err := json.Unmarshal(data, &q); err != nil {
		return nil, 0, fmt.Errorf("read data: %w", err)
	}
	switch q.ResultType {
	case "vector":
		var elements []vectorElement
		if err := json.Unmarshal(q.Result, &elements); err != nil {
			return nil, 0, fmt.Errorf("read vector: %w", err)
		}
		samples = make([]Sample, 0, len(elements))
		for _, e := range elements {
			if e.Value == nil {
				left++
				continue
			}
			samples = append(samples, Sample{Metric: e.Metric, Value: e.Value.value, Timestamp: e.Value.at})
		}
		return samples, left, nil
	case "scalar":
		var p point
		if err := json.Unmarshal(q.Result, &p); err != nil {
			return nil, 0, fmt.Errorf("read scalar: %w", err)
		}
		return []Sample{{Value: p.value, Timestamp: p.at}}, 0, nil
	case "matrix":
		return nil, 0, errors.New("it gives a range of samples where one is needed; apply rate(), avg_over_time() or the like")
	}
	return nil, 0, fmt.Errorf("it gives a %q, not a vector", q.ResultType)
}

func parseSeries(data []byte) ([]map[string]string, error) {
	var series []map[string]string
	if err := json.Unmarshal(data, &series); err != nil {
		return nil, fmt.Errorf("read series: %w", err)
	}
	return series, nil
}
