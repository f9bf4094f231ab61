// Package outages plays outages and other troubles of a server in virtual time, over aplomb and over
// other clients that retry, and judges aplomb by the requests that are lost and by the load that the
// retries bring.
//
//	make outages                                    # the main stories as a Markdown table
//	make outages ONLY='closed-8|open-200/503/20s'   # the stories whose names match; all with ONLY=.
//	make outages ONLY=open-200/503 CLIENTS=aplomb
//	go -C lab test ./outages -only open-200/503     # judge aplomb in these stories; -v shows each figure
//
// A story is a server, its trouble and a load. The names of the loads:
//
//	closed-8-100ms   8 workers upload files, and pause for 100 ms after each
//	open-200         200 GETs per second
//	deadline30-200   the same with a deadline of 30 s for each request
//	slow-200         the same with responses that take 300 ms
//	service-200      the same with profile.Service()
//	single-shots     400 GETs fail at the end of the load, and no other follows
//	random           some of the responses are 503
//	half             half of the responses to 200 GETs per second are 503; as 2s with a MaxElapsedTime, as 0.05 with a small Ratio
//	restarts         the server refuses connections for 0.5 s of every 3 s
//	capacity-0.8-1T  80 % of the capacity of a server that also works for clients who have gone, over one Transport
//	overload-1.2-1T  120 % of the capacity, over one Transport; the server refuses what would wait for more than 0.2 s
//	together         700 requests are told to come back at the same time
//	beside           100/s to /good with 1 % failures, while all requests to /bad fail
//	full             a healthy server, and a limit on the requests in flight that is never reached
//
// The names of the troubles:
//
//	503      the server answers 503; as 503-wait it also sends Retry-After: 2
//	429      the server answers 429, and says when that ends
//	refused  the server takes no connection
//	silent   the server answers nothing, and attempts have a timeout of 1 s
//	frozen   the workers stand still, and their queue grows
//
// The files:
//
//	server.go   the server
//	client.go   the clients
//	story.go    a story, and how it is played
//	stories.go  all stories
//	figures.go  the figures of a play, and the table
//	bounds.go   how much is asked of aplomb
package outages
