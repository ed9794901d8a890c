package console

import (
	"time"

	"portico.dev/internal/tools/doctor"
	"portico.dev/internal/tools/drill"
)

// States of an APIService, a hop or a backend, as the page shows them.
const (
	stateUp      = "available"
	stateDown    = "unavailable"
	stateUnknown = "unknown"
	stateLocal   = "local"
)

// row is one APIService in the list.
type row struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Service string `json:"service,omitempty"`
	// Gateway is the Service of the gateway that forwards the requests.
	Gateway string    `json:"gateway,omitempty"`
	Hops    []hop     `json:"hops,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	// Verdicts lists the verdict of each replica of the front door and of the gateway.
	Verdicts []verdict `json:"verdicts,omitempty"`
	// Notes lists other conditions that need attention.
	Notes []condition `json:"notes,omitempty"`
	// Degraded is true if the APIService is available and needs attention.
	Degraded bool `json:"degraded,omitempty"`
	// Rank is the position of its state in the list.
	Rank int `json:"rank"`

	// pool is the pool of connections to Service, gatewayPool the one to Gateway.
	pool, gatewayPool pool
}

// hop is one section of the path of a request.
type hop struct {
	From  string `json:"from"`
	To    string `json:"to"`
	State string `json:"state"`
}

// verdict is the availability of an APIService's server from the view of one replica.
type verdict struct {
	Replica string `json:"replica"`
	// Of is front door or gateway.
	Of      string `json:"of"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

type condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// Severity is error or warning if the condition of an APIService needs attention.
	Severity string `json:"severity,omitempty"`
	// Bad is true if the condition needs attention.
	Bad bool `json:"bad,omitempty"`
}

// overview is the section about the cluster and the state of the data sources.
type overview struct {
	Context string `json:"context"`
	Server  string `json:"server"`
	Version string `json:"version,omitempty"`
	// Kind is front door or API server.
	Kind    string         `json:"kind"`
	Sources []sourceStatus `json:"sources"`
}

// sourceStatus is the result of reading one data source.
type sourceStatus struct {
	Name string `json:"name"`
	// One of OK, Missing (the part that the page lacks) and Error is set after the first response.
	OK      bool   `json:"ok"`
	Missing string `json:"missing,omitempty"`
	Error   string `json:"error,omitempty"`
	// Every is the polling interval in seconds.
	Every float64 `json:"every"`
}

// backend is an extension server from the view of one replica.
type backend struct {
	Name    string `json:"name"`
	Replica string `json:"replica"`
	// Trust is how the certificate is verified, if the Service has several pools.
	Trust     string     `json:"trust,omitempty"`
	InFlight  float64    `json:"inFlight"`
	Limit     int64      `json:"limit,omitempty"`
	Trouble   bool       `json:"trouble,omitempty"`
	Ejected   float64    `json:"ejected"`
	Ejections float64    `json:"ejections"`
	Endpoints []endpoint `json:"endpoints,omitempty"`
	Series    series     `json:"series"`

	pool pool
}

type series struct {
	InFlight  []value `json:"inFlight,omitempty"`
	Rate      []value `json:"rate,omitempty"`
	Failures  []value `json:"failures,omitempty"`
	Median    []value `json:"median,omitempty"`
	Slowest   []value `json:"slowest,omitempty"`
	Probe     []value `json:"probe,omitempty"`
	Ejections []value `json:"ejections,omitempty"`
}

type endpoint struct {
	Address     string    `json:"address"`
	Zone        string    `json:"zone,omitempty"`
	State       string    `json:"state"`
	InFlight    int64     `json:"inFlight"`
	Ejections   int       `json:"ejections"`
	Protocol    string    `json:"protocol,omitempty"`
	LastFailure string    `json:"lastFailure,omitempty"`
	FailedAt    time.Time `json:"failedAt,omitzero"`
	Until       time.Time `json:"ejectedUntil,omitzero"`
	CertExpires time.Time `json:"certificateExpires,omitzero"`
	Target      string    `json:"target,omitempty"`
	Series      struct {
		InFlight  []value `json:"inFlight,omitempty"`
		Ejections []value `json:"ejections,omitempty"`
	} `json:"series"`
}

// backends is the section about extension servers.
type backends struct {
	// Total is the number of backends. Shown contains the busiest and the failing ones.
	Total int       `json:"total"`
	Shown []backend `json:"shown"`
	// Points is the length of the charts, Span the time that they show, in seconds.
	Points int     `json:"points"`
	Span   float64 `json:"span"`
}

// moment is an entry of the timeline.
type moment struct {
	At time.Time `json:"at"`
	// Kind is condition, verdict or event.
	Kind   string `json:"kind"`
	Object string `json:"object"`
	Name   string `json:"name"`
	// What is the type of the condition, or the name of the replica.
	What    string `json:"what,omitempty"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Count   int32  `json:"count,omitempty"`
	// Bad marks a change for the worse, Good a change for the better.
	Bad  bool `json:"bad,omitempty"`
	Good bool `json:"good,omitempty"`
}

// namespace is a terminating namespace.
type namespace struct {
	Name       string      `json:"name"`
	Since      time.Time   `json:"since"`
	Stuck      bool        `json:"stuck"`
	By         []culprit   `json:"by,omitempty"`
	Conditions []condition `json:"conditions,omitempty"`
}

// culprit is an obstacle to the deletion of a namespace.
type culprit struct {
	// Kind is APIService, finalizer or objects.
	Kind string `json:"kind"`
	Name string `json:"name"`
	Why  string `json:"why,omitempty"`
}

type namespaces struct {
	Total int         `json:"total"`
	Shown []namespace `json:"shown"`
}

type debt struct {
	ID           string    `json:"id"`
	Namespace    string    `json:"namespace"`
	GroupVersion string    `json:"groupVersion"`
	APIService   string    `json:"apiService"`
	Since        time.Time `json:"since"`
	State        string    `json:"state"`
	Message      string    `json:"message,omitempty"`
}

type debtList struct {
	Total int    `json:"total"`
	Shown []debt `json:"shown"`
}

// apiRoute is an APIRoute with the traffic of its backends.
type apiRoute struct {
	Name     string         `json:"name"`
	State    string         `json:"state"`
	Message  string         `json:"message,omitempty"`
	Backends []routeBackend `json:"backends"`
	Rules    []routeRule    `json:"rules,omitempty"`
}

type routeBackend struct {
	Name    string  `json:"name"`
	Service string  `json:"service,omitempty"`
	Version string  `json:"version,omitempty"`
	State   string  `json:"state"`
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
	Rate    value   `json:"rate"`
	Failing value   `json:"failures"`
	Series  []value `json:"series,omitempty"`
}

type routeRule struct {
	Name     string      `json:"name"`
	To       []string    `json:"to"`
	Fallback string      `json:"fallback,omitempty"`
	ReadOnly bool        `json:"readOnly,omitempty"`
	Back     []string    `json:"rolledBack,omitempty"`
	Notes    []condition `json:"notes,omitempty"`
}

type apiRoutes struct {
	Total int        `json:"total"`
	Shown []apiRoute `json:"shown"`
}

// job is a run of the doctor or of drills.
type job struct {
	ID int `json:"id"`
	// Kind is doctor or drills.
	Kind   string    `json:"kind"`
	Target string    `json:"target"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended,omitzero"`
	// State is running, done, cancelled or failed.
	State string `json:"state"`
	// Phase is the current phase of a run.
	Phase string `json:"phase,omitempty"`
	Error string `json:"error,omitempty"`
	// Checked and Broken count APIServices, or drills.
	Checked int `json:"checked"`
	Broken  int `json:"broken"`

	reports []*doctor.Report
	drills  []*drill.Result
}

type drillList struct {
	// Where is a description of the environment of the drills. If it is empty, drills are not available and Why
	// describes the alternative.
	Where  string      `json:"where,omitempty"`
	Why    string      `json:"why,omitempty"`
	Drills []drillInfo `json:"drills"`
}

type drillInfo struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	About  string   `json:"about"`
	Expect []string `json:"expect"`
}

// deed is an entry of the audit list.
type deed struct {
	At     time.Time `json:"at"`
	What   string    `json:"what"`
	Target string    `json:"target,omitempty"`
	Result string    `json:"result"`
	Bad    bool      `json:"bad,omitempty"`
}
