// Publishes orders to a server of Siltlog over gRPC, and reads them as a member of a group.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "siltlog.example/orders/siltv1"
)

const topic = "go-orders"

func main() {
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := pb.NewSiltClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := publish(ctx, client); err != nil {
		log.Fatal(err)
	}
	if err := handle(ctx, client, 3); err != nil {
		log.Fatal(err)
	}
}

func publish(ctx context.Context, client pb.SiltClient) error {
	_, err := client.CreateTopic(ctx, &pb.CreateTopicRequest{Name: topic})
	if err != nil && reason(err) != "topic_exists" {
		return err
	}
	for _, drink := range []string{"tea", "coffee", "water"} {
		published, err := client.Publish(ctx, &pb.PublishRequest{
			Topic:   topic,
			Records: []*pb.PublishRecord{{Key: []byte("ada"), Value: []byte(drink)}},
		})
		if err != nil {
			return err
		}
		at := published.Partitions[0]
		fmt.Printf("%s is at %d:%d\n", drink, at.Partition, at.GetFirstOffset())
	}
	_, err = client.DescribeTopic(ctx, &pb.DescribeTopicRequest{Topic: "nothing"})
	fmt.Printf("refused: %s, %s\n", status.Code(err), reason(err))
	return nil
}

// handle takes so many records one by one, and commits each once it is handled.
func handle(ctx context.Context, client pb.SiltClient, count int) error {
	stream, err := client.Subscribe(ctx)
	if err != nil {
		return err
	}
	err = stream.Send(&pb.SubscribeRequest{Message: &pb.SubscribeRequest_Start_{Start: &pb.SubscribeRequest_Start{
		Group:    "go-kitchen",
		Settings: &pb.MemberSettings{Topics: []string{topic}},
	}}})
	if err != nil {
		return err
	}
	for handled := 0; handled < count; handled++ {
		credit := &pb.SubscribeRequest_Credit{Records: 1}
		if err := stream.Send(&pb.SubscribeRequest{Message: &pb.SubscribeRequest_Credit_{Credit: credit}}); err != nil {
			return err
		}
		record, err := next(stream)
		if err != nil {
			return err
		}
		fmt.Printf("%s wants %s\n", record.Key, record.Value)
		done := &pb.CommittedOffset{Topic: record.Topic, Partition: record.Partition, Offset: record.Offset + 1}
		commit := &pb.SubscribeRequest_CommitOffsets{Offsets: []*pb.CommittedOffset{done}}
		if err := stream.Send(&pb.SubscribeRequest{Message: &pb.SubscribeRequest_Commit{Commit: commit}}); err != nil {
			return err
		}
	}
	// Whoever closes its side leaves the group. What it said before counts.
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		if _, err := stream.Recv(); err != nil {
			fmt.Println("left")
			return nil
		}
	}
}

// next waits for a record; there is credit for one.
func next(stream pb.Silt_SubscribeClient) (*pb.Record, error) {
	for {
		message, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if problem := message.GetProblem(); problem != nil {
			return nil, fmt.Errorf("%s: %s", problem.ErrorCode, problem.Detail)
		}
		if records := message.GetRecords(); records != nil {
			return records.Records[0], nil
		}
	}
}

// reason is the error_code of an error, by its google.rpc.ErrorInfo.
func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return ""
}
