// Package e2e tests the transport under well-known clients, against servers that
// are not part of this project, over a network with faults. It sends traffic to
// this machine only, and leaves nothing running.
//
// The files:
//
//	clients_test.go  the questions and faults that every client meets, and the table of docs/clients.md
//	server_test.go   servers that count, and http.Clients with and without a Transport
//	network_test.go  a network whose faults change, made with toxiproxy
//	store_test.go    a plain server, for clients that come without a fake
//	main_test.go     looks for goroutines that are left
//	s3_test.go …     a client each
//	silence_test.go  clients whose connection dies without a word
//	nginx_test.go    nginx as the server
//	soak_test.go     many workers while the faults change
//	http3            tests over quic-go's http3.Transport
//	dashboard        tests of the dashboard and the alerts, with Prometheus' own packages
package e2e
