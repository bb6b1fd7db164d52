module sluicegate.dev/test/cluster/tools/contour

go 1.26.0

require github.com/projectcontour/contour v1.33.8
