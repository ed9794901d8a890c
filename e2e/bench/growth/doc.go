// Package growth measures how the costs of a front door grow with the number of objects of one kind, and fits a
// power law to each cost.
package growth
