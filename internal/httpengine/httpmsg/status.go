package httpmsg

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// statusReasons are the reasons of metav1.Status for the codes of requests that do not reach a handler. Other codes have no
// reason.
var statusReasons = map[int]string{
	http.StatusBadRequest: "BadRequest", http.StatusRequestEntityTooLarge: "RequestEntityTooLarge",
	http.StatusRequestTimeout: "Timeout", http.StatusServiceUnavailable: "ServiceUnavailable",
}

// AppendStatus appends the JSON of a metav1.Status for a request that does not reach a handler.
func AppendStatus(b []byte, code int, message string) []byte {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	b = append(b, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":`...)
	b = append(b, text...)
	if reason := statusReasons[code]; reason != "" {
		b = append(append(append(b, `,"reason":"`...), reason...), '"')
	}
	if code == http.StatusServiceUnavailable {
		b = append(b, `,"details":{"retryAfterSeconds":1}`...)
	}
	return append(strconv.AppendInt(append(b, `,"code":`...), int64(code), 10), '}')
}
