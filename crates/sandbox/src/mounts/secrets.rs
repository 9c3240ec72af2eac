//! Secrets inside what is mounted: found by name before anything runs, wherever they lie, so that they
//! can be hidden. In a mount that can be written, what their names depend on is pinned: code that could
//! rename it would decide what the next run is shown.

mod collapse;
mod covers;
mod search;

use std::io;
use std::path::Path;

use self::collapse::Room;
use self::covers::{Area, MOST_BYTES};
use self::search::{MOST_ENTRIES, Problem, Search};
use super::{Known, refuse};
use crate::Result;
use crate::plan::CheckedMount;

/// Notes what has to be hidden in the mounts of one plan. What is at or below something that is shown
/// by its name is not looked at.
pub(super) fn note(mounts: &mut [&mut CheckedMount], known: &Known<'_>) -> Result<()> {
    let mut areas = Vec::with_capacity(mounts.len());
    let mut searched = Vec::with_capacity(mounts.len());
    let share = mounts.len().max(1);
    let room = Room {
        count: known.hiding.most / share,
        bytes: MOST_BYTES / share,
    };
    for (index, mount) in mounts.iter().enumerate() {
        match Area::open(mount, known, room) {
            Ok(Some(area)) => {
                areas.push(area);
                searched.push(index);
            }
            Ok(None) => {}
            // The code inside may be able to open up a directory that it owns.
            Err(error) => return unseen(&mount.source, &error),
        }
    }
    if areas.is_empty() {
        return Ok(());
    }
    let mut search = Search::new(areas, &known.shown);
    if let Err((area, problem)) = search.run(known.home_secrets()) {
        return fail(&mounts[searched[area]].source, problem, room);
    }
    for (area, index) in search.into_areas().into_iter().zip(searched) {
        let mount = &mut *mounts[index];
        match area.finish(&known.shown) {
            Ok((hidden, pinned)) => (mount.hidden, mount.pinned) = (hidden, pinned),
            Err(problem) => return fail(&mount.source, problem, room),
        }
    }
    Ok(())
}

fn fail(source: &Path, problem: Problem, room: Room) -> Result<()> {
    match problem {
        Problem::Entries => refuse(
            source,
            format!(
                "it contains more than {MOST_ENTRIES} entries, too many to search for secrets; mount \
                 less, or leave a part out of the search: --show-secret PATH"
            ),
        ),
        Problem::Hidden => refuse(
            source,
            format!(
                "more than {} paths in it would have to be hidden, because they contain files \
                 named like secrets; remove those that are not needed, mount less, or show the \
                 directory that contains them: --show-secret PATH",
                room.count
            ),
        ),
        Problem::Links => refuse(
            source,
            "it contains too many links named like secrets; remove those that are not needed, mount \
             less, or show the directory that contains them: --show-secret PATH",
        ),
        Problem::Io(path, error) => unseen(&source.join(path), &error),
    }
}

fn unseen(path: &Path, error: &io::Error) -> Result<()> {
    refuse(path, format!("it cannot be searched for secrets: {error}"))
}

#[cfg(test)]
mod tests;
