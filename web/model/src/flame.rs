//! The flame graph of a thread: the stacks of one rank, with what another rank has of each.

use wire::batch::total;
use wire::stacks::{Frame, Profile, ThreadRole};

/// The share of the picture from which a frame is drawn. A narrower one could not be read or clicked.
const NARROWEST: f64 = 0.002;
/// The largest number of rows.
const MOST_ROWS: usize = 96;

/// Returns the name of threads in the address.
#[must_use]
pub fn thread_key(role: ThreadRole) -> &'static str {
    match role {
        ThreadRole::Main => "main",
        ThreadRole::Thread => "threads",
        ThreadRole::Worker => "workers",
        ThreadRole::WorkerThread => "worker-threads",
    }
}

/// A frame of the picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The row, from the outermost frame on.
    pub row: usize,
    /// The left edge, as a share of the picture's width.
    pub from: f64,
    /// The width, as a share of the picture's width.
    pub width: f64,
    pub frame: Frame,
    /// The share of the thread's samples with this stack.
    pub own: f64,
    /// The share of the other rank's samples with the same stack; `None` without another rank.
    pub other: Option<f64>,
    /// The frames around it and itself, outermost first.
    pub path: Vec<Frame>,
}

impl Cell {
    /// Returns how the share differs from the other rank's, for the style sheet: `more-3` to `more-1`, `same`, `less-1` to
    /// `less-3`, or `alone`.
    #[must_use]
    pub fn class(&self) -> &'static str {
        let Some(other) = self.other else { return "alone" };
        match self.own - other {
            gain if gain > 0.3 => "more-3",
            gain if gain > 0.1 => "more-2",
            gain if gain > 0.03 => "more-1",
            gain if gain < -0.3 => "less-3",
            gain if gain < -0.1 => "less-2",
            gain if gain < -0.03 => "less-1",
            _ => "same",
        }
    }
}

/// A function and its callees.
#[derive(Debug, Default)]
struct Node {
    own: u64,
    other: u64,
    children: Vec<(Frame, Node)>,
}

impl Node {
    fn add(&mut self, stack: &[&Frame], count: u64, is_own: bool) {
        if is_own {
            self.own += count;
        } else {
            self.other += count;
        }
        let Some((first, rest)) = stack.split_first() else { return };
        let at = match self.children.iter().position(|(frame, _)| frame == *first) {
            Some(at) => at,
            None => {
                self.children.push(((*first).clone(), Self::default()));
                self.children.len() - 1
            }
        };
        self.children[at].1.add(rest, count, is_own);
    }
}

fn samples(profile: &Profile, role: ThreadRole) -> u64 {
    total(profile.threads.iter().filter(|thread| thread.role == role).map(|thread| thread.samples))
}

fn tree(own: &Profile, other: Option<&Profile>, role: ThreadRole) -> Node {
    let mut root = Node::default();
    for (profile, is_own) in [(Some(own), true), (other, false)] {
        let Some(profile) = profile else { continue };
        for thread in profile.threads.iter().filter(|thread| thread.role == role) {
            for stack in &thread.stacks {
                let frames: Vec<&Frame> =
                    stack.frames.iter().filter_map(|at| profile.frames.get(*at as usize)).collect();
                root.add(&frames, stack.count, is_own);
            }
        }
    }
    root
}

/// Lays out the stacks of one rank's threads of a role. `zoom` is the path of the frame that takes the whole width; the
/// frames around it are drawn above it. Only frames that the rank has are drawn.
#[must_use]
pub fn cells(own: &Profile, other: Option<&Profile>, role: ThreadRole, zoom: &[Frame]) -> Vec<Cell> {
    let (mut root, mut cells) = (tree(own, other, role), Vec::new());
    let layout = Layout {
        own: samples(own, role).max(1) as f64,
        other: other.map(|other| samples(other, role).max(1) as f64),
    };
    let mut path = Vec::new();
    for frame in zoom {
        let Some(at) = root.children.iter().position(|(child, _)| child == frame) else { break };
        let (frame, child) = root.children.swap_remove(at);
        path.push(frame);
        cells.push(layout.cell(&child, &path, 0.0, 1.0));
        root = child;
    }
    layout.add(&root, &mut path, (0.0, 1.0), &mut cells);
    cells
}

/// The samples that shares are of.
struct Layout {
    own: f64,
    other: Option<f64>,
}

impl Layout {
    fn cell(&self, node: &Node, path: &[Frame], from: f64, width: f64) -> Cell {
        Cell {
            row: path.len() - 1,
            from,
            width,
            frame: path[path.len() - 1].clone(),
            own: node.own as f64 / self.own,
            other: self.other.map(|other| node.other as f64 / other),
            path: path.to_vec(),
        }
    }

    fn add(&self, node: &Node, path: &mut Vec<Frame>, (from, width): (f64, f64), cells: &mut Vec<Cell>) {
        if path.len() >= MOST_ROWS || node.own == 0 {
            return;
        }
        // Equal stacks are next to each other, however often each was sampled.
        let mut children: Vec<&(Frame, Node)> = node.children.iter().collect();
        children.sort_by(|a, b| a.0.cmp(&b.0));
        let mut left = from;
        for (frame, child) in children {
            let share = width * child.own as f64 / node.own as f64;
            if share >= NARROWEST {
                path.push(frame.clone());
                cells.push(self.cell(child, path, left, share));
                self.add(child, path, (left, share), cells);
                path.pop();
            }
            left += share;
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::stacks::{Stack, ThreadStacks};

    use super::*;

    fn frame(function: &str) -> Frame {
        Frame { function: function.into(), file: "train.py".into(), line: 1 }
    }

    fn profile(stacks: &[(&[&str], u64)], samples: u64) -> Profile {
        let names = ["main", "next", "decode", "backward"];
        let number = |name: &&str| names.iter().position(|known| known == name).unwrap() as u32;
        let stacks = stacks
            .iter()
            .map(|(frames, count)| Stack { count: *count, frames: frames.iter().map(number).collect() });
        let thread = ThreadStacks {
            role: ThreadRole::Main,
            name: String::new(),
            processes: 1,
            samples,
            stacks: stacks.collect(),
        };
        Profile { frames: names.map(frame).to_vec(), threads: vec![thread], torn: 0 }
    }

    fn drawn(cells: &[Cell]) -> Vec<(usize, &str, f64, f64, &str)> {
        cells
            .iter()
            .map(|cell| (cell.row, cell.frame.function.as_str(), cell.from, cell.width, cell.class()))
            .collect()
    }

    #[test]
    fn widths_are_the_ranks_and_colors_the_difference() {
        let slow = profile(&[(&["main", "next", "decode"], 60), (&["main", "backward"], 40)], 100);
        let usual = profile(&[(&["main", "next"], 4), (&["main", "backward"], 36)], 40);
        let cells = cells(&slow, Some(&usual), ThreadRole::Main, &[]);
        assert_eq!(
            drawn(&cells),
            [
                (0, "main", 0.0, 1.0, "same"),
                (1, "backward", 0.0, 0.4, "less-3"),
                (1, "next", 0.4, 0.6, "more-3"),
                (2, "decode", 0.4, 0.6, "more-3"),
            ]
        );
        assert_eq!((cells[2].own, cells[2].other), (0.6, Some(0.1)));
    }

    #[test]
    fn the_zoomed_frame_takes_the_whole_width_below_the_frames_around_it() {
        let slow =
            profile(&[(&["main", "next", "decode"], 30), (&["main", "next"], 30), (&["main"], 40)], 100);
        let cells = cells(&slow, None, ThreadRole::Main, &[frame("main"), frame("next")]);
        let expected = [
            (0, "main", 0.0, 1.0, "alone"),
            (1, "next", 0.0, 1.0, "alone"),
            (2, "decode", 0.0, 0.5, "alone"),
        ];
        assert_eq!(drawn(&cells), expected);
        assert_eq!((cells[1].own, cells[1].path.len()), (0.6, 2));
        assert!(super::cells(&slow, None, ThreadRole::Worker, &[]).is_empty());
    }
}
