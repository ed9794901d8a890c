package columns

import (
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

// ScaleColumns is how the scale of any workload is shown.
func ScaleColumns() Printer {
	p := Show(func(s *autoscalingv1.Scale, now time.Time) []any {
		return []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), AgeOf(s, now)}
	}, Name(), Number("Desired", autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]),
		Number("Available", autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]), Age())
	p.Columns[0].Format = ""
	return p
}
